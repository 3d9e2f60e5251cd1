"""What the canvas timeline looks like and says: colours, names, words, every box."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

from engine.job.job import Job
from lab.views.figures.style.palette import PALETTES, Theme
from lab.views.timeline import timeline_data
from tests.browser.timeline_page import Open, press, said, settled
from tests.lab.synthetic import op, recording_of


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_has_the_colours_of_the_page(visit: Open, theme: Theme) -> None:
    page = visit(color_scheme=theme)
    assert page.locator("#one .sl-timeline").get_attribute("data-theme") == theme
    other: Theme = "dark" if theme == "light" else "light"
    page.emulate_media(color_scheme=other)
    page.wait_for_function("t => document.querySelector('.sl-timeline').dataset.theme === t", arg=other)
    page.evaluate("light => document.body.dataset.jpThemeLight = light", str(theme == "light").lower())  # JupyterLab's
    page.wait_for_function("t => document.querySelector('.sl-timeline').dataset.theme === t", arg=theme)
    settled(page)
    corner = page.locator("#one canvas").first.evaluate("c => [...c.getContext('2d').getImageData(3, 3, 1, 1).data]")
    assert "#{:02X}{:02X}{:02X}".format(*corner[:3]) == PALETTES[theme].paper
    page.evaluate("one.update({ theme: 'light' })")
    assert page.locator("#one .sl-timeline").get_attribute("data-theme") == "light"


@pytest.mark.parametrize(("width", "theme"), [(1000, "light"), (400, "dark")])
def test_axe_finds_nothing(visit: Open, width: int, theme: str) -> None:
    page = visit(width=width, color_scheme=theme)
    page.add_style_tag(content=f"body {{ background: {PALETTES[theme].paper}; color: {PALETTES[theme].ink} }}")
    press(page, "Home", "?")
    found = Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"] for n in v["nodes"]]) for v in found] == []
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_picture_has_a_name_and_a_summary(visit: Open, pair: list[dict[str, Any]]) -> None:
    plot = visit().locator("#one .sl-plot")
    assert (plot.get_attribute("aria-label") or "").startswith("Timeline, first. Arrow keys move")
    described = plot.evaluate("p => document.getElementById(p.getAttribute('aria-describedby')).textContent")
    assert pair[0]["summary"] in described and "hatched is idle" in described


def test_hostile_names_are_shown_as_text(visit: Open) -> None:
    name = "<img src=x onerror='window.hacked=1'>"
    row = op(rank=0, seq=0, kind="forward", name=name, microbatch=0, stage=0, end_ns=1_000_000)
    data = timeline_data(recording_of([row]), Job(), 0)
    page = visit([data, {**data, "title": name, "ranks": [{"rank": 0, "name": name, "where": name}]}])
    press(page, "Home")
    page.locator("#two .sl-plot").hover(position={"x": 300, "y": 45})
    assert name in said(page) and name in page.locator("#two .sl-tip").inner_text()
    assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0


def test_no_box_vanishes_however_narrow(visit: Open) -> None:
    wide = op(rank=0, seq=0, kind="forward", name="wide", end_ns=500_000_000)
    narrow = op(rank=0, seq=1, kind="backward", name="narrow", start_ns=500_000_000, end_ns=500_000_100)
    after = op(rank=0, seq=2, kind="forward", name="after", start_ns=500_000_100, end_ns=1_000_000_000)
    data = timeline_data(recording_of([wide, narrow, after]), Job(), 0)
    page = visit([data, data])
    settled(page)
    orange = [int(PALETTES["light"].orange[i : i + 2], 16) for i in (1, 3, 5)]
    nearest: Any = page.locator("#one canvas").first.evaluate(
        """(canvas, [r, g, b]) => {
            const { data } = canvas.getContext("2d").getImageData(0, 45, canvas.width, 1);
            let least = Infinity;
            for (let i = 0; i < data.length; i += 4) {
                least = Math.min(least, Math.hypot(data[i] - r, data[i + 1] - g, data[i + 2] - b));
            }
            return least;
        }""",
        orange,
    )
    assert nearest < 145  # half a pixel of it at least: what lies around is some 280 away


def test_a_recording_without_a_step_says_so_in_place_of_a_picture(visit: Open, pair: list[dict[str, Any]]) -> None:
    page = visit([timeline_data(recording_of(), Job()), pair[0]])
    assert "No step was completed" in page.locator("#one .sl-title").inner_text()
    assert not page.locator("#one .sl-plot").is_visible()


def test_a_picture_of_it_can_be_saved_with_its_title_and_what_is_drawn(visit: Open, tmp_path: Path) -> None:
    page = visit()
    with page.expect_download() as taken:
        page.locator("#one").get_by_role("button", name="Save as a picture").click()
    assert taken.value.suggested_filename == "first.png"
    taken.value.save_as(tmp_path / "saved.png")
    saved = Image.open(tmp_path / "saved.png").convert("RGB")
    canvas = page.locator("#one canvas").first
    width, height = canvas.evaluate("c => [c.width, c.height]")
    assert (saved.width - width, saved.height - height) == (24, 68)  # the margins, and two lines above
    for x, y in ((width // 3, height // 4), (width // 2, height // 2), (width // 4, height - 20)):
        drawn = canvas.evaluate("(c, at) => [...c.getContext('2d').getImageData(...at, 1, 1).data].slice(0, 3)", [x, y])
        assert list(saved.getpixel((x + 12, y + 56))) == drawn
    assert len(saved.crop((12, 12, 400, 34)).getcolors() or []) > 2, "the title"
