"""The report in a real browser, opened from disk. Without a browser these tests fail: a report nobody
opened proves nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page

from engine.job.job import Job
from engine.prediction.replay.replay import replay
from lab.views.figures.style.palette import PALETTES
from lab.views.report import write_report
from tests.engine.clusters import cluster
from tests.lab.fake_run import fake_run, simulated_run

TIMELINES = ["timeline", "comparison"]
FIGURES = ["shares", "grid", "memory", "memory-over-time", "communication", "matrix"]
CUBE = Job.from_options(dp=2, tp=2, pp=2, zero=1)
DRAW_MS = 120_000  # six figures, one of them in 3D by software, on a busy two-core machine


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run, small = fake_run(CUBE), cluster(2, devices=8)
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(run, path, replay(run.recording, run.job, small), small.name)


class Visit:
    """A page, and what it asked for and complained about."""

    def __init__(self, browser: Browser, path: Path, width: int, theme: Literal["light", "dark"]) -> None:
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page: Page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())
        self.drawn(theme)

    def drawn(self, theme: str) -> None:
        self.page.wait_for_function(
            "theme => document.documentElement.dataset.drawn === theme", arg=theme, timeout=DRAW_MS
        )

    def papers(self) -> set[str]:
        """The background of every figure."""
        return set(self.page.eval_on_selector_all(".plot", "plots => plots.map(p => p._fullLayout.paper_bgcolor)"))


@pytest.fixture(scope="module")
def visit(browser: Browser, report: Path) -> Visit:
    return Visit(browser, report, 1100, "light")


def test_a_report_opened_from_disk_asks_nobody_for_anything_and_complains_about_nothing(visit: Visit) -> None:
    assert visit.complaints == []
    assert visit.asked and all(url.split(":")[0] in ("file", "data", "blob") for url in visit.asked)
    assert sum(url.startswith("file:") for url in visit.asked) == 1


INK = ".main-svg .points path, .main-svg .scatterlayer path, .main-svg .hm image, .main-svg .heatmap-label text"


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_really_drawn(visit: Visit, name: str) -> None:
    box = visit.page.locator(f"#plot-{name}")
    box.scroll_into_view_if_needed()
    if name == "grid":  # the picture must be taken before the browser clears the buffer
        visit.page.evaluate("Plotly.Plots.resize('plot-grid')")
        image = visit.page.evaluate("Plotly.toImage('plot-grid', {format: 'png', width: 500, height: 400})")
        assert len(image) > 20_000  # an empty scene makes some 3,000
        return
    assert box.locator(INK).count() > 3


@pytest.mark.parametrize("name", TIMELINES)
def test_every_timeline_is_really_drawn(visit: Visit, name: str) -> None:
    canvas = visit.page.locator(f"#plot-{name} canvas").first
    colours = canvas.evaluate("""canvas => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const found = new Uint32Array(data.buffer), counts = new Map();
        for (const c of found) counts.set(c, (counts.get(c) ?? 0) + 1);
        return [...counts.values()].filter(count => count > 500).length;
    }""")
    assert colours >= 5  # the page, forward, backward, step, collectives…


def test_nothing_offers_to_send_a_figure_away(visit: Visit) -> None:
    titles = visit.page.eval_on_selector_all(".modebar-btn", "buttons => buttons.map(b => b.dataset.title || '')")
    assert titles and not [t for t in titles if "cloud" in t.lower() or "share" in t.lower() or "plotly" in t.lower()]


def test_figures_follow_the_readers_colours_when_these_change(visit: Visit) -> None:
    assert visit.papers() == {PALETTES["light"].paper}
    visit.page.emulate_media(color_scheme="dark")
    visit.drawn("dark")
    assert visit.papers() == {PALETTES["dark"].paper}
    visit.page.emulate_media(color_scheme="light")
    visit.drawn("light")
    assert visit.papers() == {PALETTES["light"].paper}
    assert visit.complaints == []


def test_the_first_tab_offers_to_skip_and_every_figure_can_be_reached_by_keyboard(visit: Visit) -> None:
    visit.page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    reached: list[str] = []
    for _ in range(150):  # the buttons above each figure can be reached too
        visit.page.keyboard.press("Tab")
        found: Any = visit.page.evaluate(
            "(a => [a.className, a.querySelector('.plot')?.id, a.closest('.timeline')?.id].join(' '))"
            "(document.activeElement)"
        )
        reached.append(found)
    assert reached[0].startswith("skip")
    assert {f"plot-{name}" for name in FIGURES + TIMELINES} <= {word for found in reached for word in found.split()}


def test_a_report_in_dark_colours_is_dark_from_the_start(browser: Browser, report: Path) -> None:
    dark = Visit(browser, report, 1100, "dark")
    assert dark.papers() == {PALETTES["dark"].paper}
    assert dark.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 15, 19)"
    assert dark.complaints == []
    dark.page.close()


def test_on_a_screen_of_400_pixels_the_page_never_scrolls_sideways(browser: Browser, report: Path) -> None:
    narrow = Visit(browser, report, 400, "light")
    narrow.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert narrow.page.evaluate("document.documentElement.scrollWidth") == 400
    wide = narrow.page.locator(".scroll:has(#plot-communication)")
    assert wide.evaluate("box => box.scrollWidth > box.clientWidth")
    assert narrow.page.locator("#plot-timeline canvas").first.evaluate("canvas => canvas.clientWidth < 400")
    assert narrow.complaints == []
    narrow.page.close()


def test_reports_of_64_ranks_a_failed_run_and_a_simulation_open_without_complaint(
    browser: Browser, tmp_path: Path
) -> None:
    big = fake_run(Job.from_options(dp=4, tp=4, pp=4, layers=16, microbatches=4, batch=16), steps=2)
    failed = fake_run(CUBE, steps=0, status="failed", message="rank 3: killed")
    simulated = simulated_run(Job.from_options(dp=16, tp=4, pp=2, batch=64, steps=1, cluster="h100-dgx"))
    for name, run in (("big", big), ("failed", failed), ("simulated", simulated)):
        visit = Visit(browser, write_report(run, tmp_path / f"{name}.html"), 1100, "light")
        assert visit.complaints == []
        visit.page.close()
