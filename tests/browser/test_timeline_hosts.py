"""The canvas timeline and what is around it: other timelines, Jupyter, Streamlit, new data."""

from __future__ import annotations

from lab.views.timeline import module
from tests.browser.timeline_page import Open, heard, picture, press, said


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
