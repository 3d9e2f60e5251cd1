"""The timeline component in a real browser, as its hosts mount it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from engine.cluster import load_cluster
from engine.job import Job
from engine.replay import replay
from engine.simulate import simulate
from lab.figures.palette import PALETTES
from lab.timeline import module, portable, timeline_data
from tests.engine.clusters import cluster
from tests.lab.synthetic import LIFELIKE, op, recording_of, synthetic

CUBE = Job.from_options(dp=2, tp=2, pp=2, zero=1)
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Timelines</title></head>
<body><main><h1>Timelines</h1><div id="one"></div><div id="two"></div></main>
<script type="application/json" id="data">{data}</script>
<script type="module">{module}
const data = JSON.parse(document.getElementById("data").textContent);
window.data = data;
window.load = (text) =>
  import(URL.createObjectURL(new Blob([text], {{ type: "text/javascript" }}))).then((found) => found.default);
window.heard = {{ select: [], window: [], cursor: [] }};
const listeners = {{
  onSelect: (chosen) => heard.select.push(chosen),
  onWindow: (window) => heard.window.push(window),
  onCursor: (time) => heard.cursor.push(time),
}};
window.one = mount(document.getElementById("one"), {{ data: data[0], group: "pair", label: "first", ...listeners }});
window.two = mount(document.getElementById("two"), {{ data: data[1], group: "pair", label: "second" }});
</script></body></html>"""

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def pair() -> list[dict[str, Any]]:
    recording = synthetic(CUBE, LIFELIKE)
    slow = simulate(CUBE, load_cluster("toy-2x4"))
    fast = replay(slow, CUBE, cluster(2, devices=8))
    return [timeline_data(recording, CUBE, 1), timeline_data(slow, CUBE, predicted=fast)]


@pytest.fixture
def visit(browser: Browser, pair: list[dict[str, Any]], tmp_path: Path) -> Iterator[Open]:
    pages: list[Page] = []
    complaints: list[str] = []

    def open_page(data: list[dict[str, Any]] = pair, width: int = 1000, **options: Any) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        text = json.dumps([portable(each) for each in data]).replace("<", "\\u003c")
        (tmp_path / "page.html").write_text(PAGE.format(data=text, module=module()), encoding="utf-8")
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_function("document.querySelector('#two .sl-timeline')?.dataset.drawMs !== undefined")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert complaints == []


def settled(page: Page) -> None:
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def heard(page: Page, what: str) -> list[Any]:
    found: list[Any] = page.evaluate(f"heard.{what}")
    return found


def press(page: Page, *keys: str, on: str = "#one") -> None:
    page.locator(f"{on} .sl-plot").focus()
    for key in keys:
        page.keyboard.press(key)


def said(page: Page, of: str = "#one") -> str:
    return page.locator(f"{of} .sl-said").inner_text()


def picture(page: Page, of: str = "#one") -> str:
    settled(page)
    found: str = page.locator(f"{of} canvas").first.evaluate("canvas => canvas.toDataURL()")
    return found


def column(data: dict[str, Any], name: str, kind: str) -> Any:
    return np.frombuffer(data["layers"][0]["columns"][name]["data"], kind)


# -- keys


def test_keys_zoom_move_and_show_the_whole_again(visit: Open, pair: list[dict[str, Any]]) -> None:
    page = visit()
    whole = max(layer["length"] for data in pair for layer in data["layers"])  # of the group
    before = picture(page)
    press(page, "w")
    assert picture(page) != before
    (start, end) = heard(page, "window")[-1]
    assert end - start == pytest.approx(0.6 * whole) and (start + end) / 2 == pytest.approx(whole / 2)
    press(page, "d")
    assert heard(page, "window")[-1][0] == pytest.approx(start + 0.2 * 0.6 * whole)
    press(page, "f")
    assert heard(page, "window")[-1] is None and picture(page) == before


def test_arrows_walk_through_the_operations_of_a_rank_and_say_each_in_words(
    visit: Open, pair: list[dict[str, Any]]
) -> None:
    page = visit()
    press(page, "Home")
    assert heard(page, "select") == [{"rank": 0, "op": int(column(pair[0], "op", "<i4")[0])}]
    first = said(page)
    assert first.startswith("forward embedding mb0 stage0, rank 0;") and "from 0 µs on" in first
    press(page, "ArrowRight")
    assert said(page).startswith("forward block0 mb0 stage0, rank 0;")
    press(page, ".", ",", "ArrowLeft")
    assert said(page) == first
    press(page, "ArrowDown")
    assert ", rank 1;" in said(page) and heard(page, "select")[-1]["rank"] == 1
    press(page, "Escape")
    assert said(page) == "" and heard(page, "select")[-1] == {"rank": None, "op": None}


def test_an_idle_stretch_says_its_cause_to_keys_and_pointer(visit: Open, pair: list[dict[str, Any]]) -> None:
    page = visit([pair[0], pair[0]])
    press(page, "End")
    assert heard(page, "select")[-1] == {"rank": 0, "op": None}
    assert said(page).startswith("idle, rank 0, for ") and "cause: " in said(page)
    press(page, "Escape")
    start, length = column(pair[0], "start", "<f4"), column(pair[0], "length", "<f4")
    cause = column(pair[0], "cause", "|u1")
    lane, sub = column(pair[0], "lane", "<u2"), column(pair[0], "sub", "|u1")
    waits = np.flatnonzero((lane == 0) & (sub == 0) & (cause == 0))  # for another rank to compute
    longest = int(waits[length[waits].argmax()])
    left, right, whole = (
        108,
        page.locator("#one .sl-plot").evaluate("p => p.clientWidth") - 8,
        pair[0]["layers"][0]["length"],
    )
    x = left + (start[longest] + length[longest] / 2) / whole * (right - left)
    page.locator("#one .sl-plot").hover(position={"x": float(x), "y": 45})
    tip = page.locator("#one .sl-tip").inner_text()
    assert "idle, rank 0, for" in tip and "waits for " in tip
    assert "cause: waits for another rank to compute" in tip


def test_space_plays_the_cursor_and_pauses_it(visit: Open) -> None:
    page = visit()
    press(page, " ")
    page.wait_for_function("heard.cursor.length > 3")
    assert page.locator("#one button", has_text="Pause").count() == 1
    press(page, " ")
    times = heard(page, "cursor")
    assert times == sorted(times) and times[-1] > 0
    assert said(page).startswith("cursor at ")


def test_the_question_mark_shows_every_key(visit: Open) -> None:
    page = visit()
    press(page, "?")
    table = page.locator("#one .sl-keys")
    assert table.is_visible() and "zoom in, zoom out" in table.inner_text()
    page.locator("#one button", has_text="Keys").click()
    assert not table.is_visible()


# -- pointer


def test_a_click_chooses_an_operation_and_a_click_on_a_name_its_rank(visit: Open, pair: list[dict[str, Any]]) -> None:
    page = visit([pair[0], pair[0]])
    plot = page.locator("#one .sl-plot")
    plot.click(position={"x": 109, "y": 45})
    assert heard(page, "select") == [{"rank": 0, "op": 0}] and len(heard(page, "cursor")) == 1
    before = picture(page)
    plot.click(position={"x": 20, "y": 105})
    assert heard(page, "select")[-1] == {"rank": 1, "op": None} and len(heard(page, "cursor")) == 1
    assert "rank 1 (dp0 tp1 pp0): idle for" in said(page)
    assert picture(page) != before  # the lane is marked


def test_the_wheel_scrolls_the_page_and_zooms_only_with_control(visit: Open) -> None:
    page = visit(width=600)
    page.locator("#one .sl-plot").hover(position={"x": 300, "y": 100})
    page.mouse.wheel(0, 120)
    page.wait_for_function("scrollY > 0")
    assert heard(page, "window") == []
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function("heard.window.length > 0")
    (start, end) = heard(page, "window")[-1]
    page.mouse.down()
    page.mouse.move(200, 300, steps=5)
    page.mouse.up()
    moved = heard(page, "window")[-1]
    assert moved[1] - moved[0] == pytest.approx(end - start) and moved[0] > start
    assert heard(page, "select") == []


def test_buttons_zoom_and_fit_and_have_names(visit: Open) -> None:
    page = visit()
    for name in ("Zoom in", "Zoom out", "Show the whole step", "Play the cursor", "Show the keys"):
        assert page.get_by_role("button", name=name).count() == 2
    page.get_by_role("button", name="Zoom in").first.click()
    assert heard(page, "window")[-1] is not None
    page.get_by_role("button", name="Show the whole step").first.click()
    assert heard(page, "window")[-1] is None


# -- hosts and other timelines


def test_timelines_of_a_group_share_window_and_cursor_and_others_do_not(visit: Open) -> None:
    page = visit()
    before = picture(page, "#two")
    page.evaluate("one.update({ window: [1, 5] })")
    linked = picture(page, "#two")
    assert linked != before
    press(page, "f", on="#two")
    assert heard(page, "window")[-1] is None and picture(page, "#two") == before
    page.evaluate("two.update({ group: '' })")
    page.evaluate("one.update({ window: [1, 5], cursorMs: 3 })")
    assert picture(page, "#two") == before


def test_a_host_that_chooses_a_rank_drops_an_operation_of_another_and_is_not_told_what_it_said(visit: Open) -> None:
    page = visit()
    page.evaluate("one.update({ selectedRank: 3 })")
    assert heard(page, "select") == [] and said(page).startswith("rank 3 (")
    page.evaluate("one.update({ selectedOp: 0 })")
    assert heard(page, "select") == [{"rank": 0, "op": 0}]
    page.evaluate("one.update({ selectedRank: 2 })")
    assert heard(page, "select")[-1] == {"rank": 2, "op": None}


IN_JUPYTER = """async (text) => {
    const { render } = await load(text);
    const values = { data: data[0], theme: "auto", label: "", group: "", selected_rank: null, selected_op: null,
                     cursor_ms: null, window: null };
    const handlers = {};
    window.model = {
        values, saved: 0,
        get: (name) => values[name],
        set: (name, value) => { values[name] = value; },
        save_changes: () => { model.saved++; },
        on: (name, call) => { handlers[name] = call; },
        off: (name, call) => { if (handlers[name] === call) delete handlers[name]; },
        tell: (changes) => {
            Object.assign(values, changes);
            for (const name of Object.keys(changes)) handlers["change:" + name]();
        },
    };
    window.outside = 0;
    document.body.addEventListener("keydown", () => outside++);
    one.destroy();
    render({ model, el: document.getElementById("one") });
}"""


def test_in_jupyter_traits_are_options_both_ways_and_keys_stay_inside(visit: Open) -> None:
    page = visit()
    page.evaluate(IN_JUPYTER, module("jupyter.js"))
    press(page, "Home", "w", "x")
    assert page.evaluate("outside") == 0
    page.wait_for_function("model.values.window !== null && model.saved > 1")
    assert page.evaluate("[model.values.selected_rank, model.values.selected_op]") == [0, 0]
    page.evaluate("model.tell({ selected_rank: 3, selected_op: null })")
    page.wait_for_function("document.querySelector('#one .sl-said').textContent.startsWith('rank 3 (')")
    page.evaluate("model.tell({ selected_rank: 0, selected_op: 1 })")
    page.wait_for_function("document.querySelector('#one .sl-said').textContent.startsWith('forward block0 mb0')")
    assert page.evaluate("[model.values.selected_rank, model.values.selected_op]") == [0, 1]


IN_STREAMLIT = """async (text) => {
    const show = await load(text);
    one.destroy();
    const parentElement = document.getElementById("one");
    parentElement.innerHTML = '<div class="timeline-host"></div>';
    window.states = [];
    window.run = (selectedRank) => show({
        data: { drawn: data[0], stamp: "a", selectedRank, selectedOp: null, group: "" }, parentElement,
        setStateValue: (name, value) => states.push([name, value]),
    });
    run(3);
}"""


def test_in_streamlit_a_page_that_repeats_itself_does_not_undo_the_readers_choice(visit: Open) -> None:
    page = visit()
    page.evaluate(IN_STREAMLIT, module("streamlit.js"))
    assert said(page).startswith("rank 3 (")
    press(page, "Home", "w")
    name, chosen = page.evaluate("states[0]")
    assert name == "selected" and chosen["rank"] == 3 and chosen["op"] is not None
    page.wait_for_function("states.some(([name]) => name === 'window')")
    page.evaluate("void run(3)")
    assert said(page).startswith("forward embedding")
    page.evaluate("void run(2)")
    assert said(page).startswith("rank 2 (")


def test_new_data_takes_the_place_of_the_old(visit: Open) -> None:
    page = visit()
    page.evaluate("one.update({ selectedOp: 0 })")
    page.evaluate("one.update({ data: JSON.parse(document.getElementById('data').textContent)[1] })")
    assert "predicted were" in page.locator("#one .sl-title").inner_text()
    assert heard(page, "select")[-1]["op"] is None


def test_an_overlay_says_both_lengths_and_names_the_outlines(visit: Open) -> None:
    page = visit()
    assert "predicted were" in page.locator("#two .sl-title").inner_text()
    assert "outline: predicted" in page.locator("#two .sl-legend").inner_text()
    press(page, "Home", on="#two")
    words = said(page, "#two")
    assert words.startswith("measured: forward embedding mb0") and "; predicted: " in words


def test_destroyed_it_leaves_nothing_behind(visit: Open) -> None:
    page = visit()
    page.evaluate("one.destroy(), two.destroy()")
    assert page.locator("#one > *").count() == 0
    assert page.evaluate("globalThis[Symbol.for('shardlab.timeline')].size") == 0


# -- looks and words


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_has_the_colours_of_the_page(visit: Open, theme: str) -> None:
    page = visit(color_scheme=theme)
    assert page.locator("#one .sl-timeline").get_attribute("data-theme") == theme
    other = "dark" if theme == "light" else "light"
    page.emulate_media(color_scheme=other)  # type: ignore[arg-type]  # one of the two
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
