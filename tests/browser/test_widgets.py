"""The widgets in a real browser, on a page with a pretended kernel: what keys do, what is sent, what is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from engine.job.job import Job
from lab.widgets.explorer import knobs
from lab.widgets.modules import module, styles

CUBE = Job.from_options(dp=2, tp=2, pp=2, cluster="toy-2x4")

# what a widget's script needs of its model; `sent` is what the kernel would hear
MODEL = """
const listeners = {};
globalThis.sent = [];
globalThis.model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = value; for (const f of listeners[`change:${name}`] ?? []) f(); },
  on: (names, f) => { for (const name of names.split(" ")) (listeners[name] ??= []).push(f); },
  off: (name, f) => { listeners[name] = (listeners[name] ?? []).filter((g) => f && g !== f); },
  send: (message) => sent.push(message),
  save_changes: () => sent.push({ ...state }),
};
"""


def shown(browser: Browser, script: str, state: dict[str, Any], **options: Any) -> Page:
    page = browser.new_page(**options)
    text = module(script).replace("export default", "const widget =")
    page.set_content(
        f"<!doctype html><html lang=en><title>A widget</title><style>{styles()}</style><main><h1>A widget</h1>"
        f"<div id=here></div></main><script>const state = {json.dumps(state)};{MODEL}{text}"
        "widget.render({ model, el: document.getElementById('here') });</script>"
    )
    return page


def panel(browser: Browser, **options: Any) -> Page:
    state = {
        "knobs": [knobs.described(knob, CUBE, 1.0) for knob in knobs.chosen(())],
        "said": "", "state": "measured", "run": "r1", "shown": "measured", "headline": "Measured: 12 ms a step.",
        "badge": {"verdict": "equal", "text": "✔ equal to one process"}, "busy": False, "progress": 0,
        "source": "measured",
        "sources": [{"value": name, "text": name.capitalize()} for name in ("measured", "replayed")],
    }  # fmt: skip
    return shown(browser, "panel.js", state, **options)


def knob(page: Page, name: str) -> Any:
    return page.locator(f"[data-knob={name}] :is(input, select)")


def wishes(page: Page) -> list[dict[str, Any]]:
    page.wait_for_timeout(300)  # longer than a slider waits for its hand to rest
    found: list[dict[str, Any]] = page.evaluate("sent")
    return found


def test_a_slider_passes_over_what_is_illegal_says_why_and_asks_for_where_it_lands(browser: Browser) -> None:
    page = panel(browser)
    knob(page, "microbatches").focus()
    page.keyboard.press("ArrowRight")  # from 4 to 5, which does not divide a replica's 8 sequences
    assert knob(page, "microbatches").get_attribute("aria-valuetext") == "8"
    assert "dp=2 × microbatches=5 = 10 does not divide batch=16" in page.inner_text(".said")
    assert "It went on to 8." in page.inner_text(".said")
    assert wishes(page) == [{"kind": "wish", "name": "microbatches", "value": 8}]


def test_where_nothing_legal_follows_the_slider_stays_and_says_why(browser: Browser) -> None:
    page = panel(browser)
    knob(page, "pp").focus()
    page.keyboard.press("ArrowRight")
    assert knob(page, "pp").get_attribute("aria-valuetext") == "2"
    assert "toy-2x4" in page.inner_text(".said")
    assert wishes(page) == []


def test_many_moves_ask_once(browser: Browser) -> None:
    page = panel(browser)
    moves = "one => { for (let i = 0; i < 3; i++) { one.stepUp(); one.dispatchEvent(new Event('input')); } }"
    knob(page, "zero").evaluate(moves)  # at once: three presses take longer than its patience on a busy machine
    assert wishes(page) == [{"kind": "wish", "name": "zero", "value": 3}]


def test_an_illegal_choice_in_a_list_goes_to_a_legal_one_or_back(browser: Browser) -> None:
    page = panel(browser)
    knob(page, "schedule").select_option(label="GPipe")
    assert wishes(page) == [{"kind": "wish", "name": "schedule", "value": "gpipe"}]


def test_the_kernel_can_move_every_knob_and_what_it_says_is_shown(browser: Browser) -> None:
    page = panel(browser)
    moved = [knobs.described(k, Job.from_options(CUBE, zero=2, sequence_parallel=True), 1.0) for k in knobs.chosen(())]
    page.evaluate("knobs => model.set('knobs', knobs)", moved)
    page.evaluate("model.set('state', 'running'); model.set('busy', true)")
    assert knob(page, "zero").get_attribute("aria-valuetext") == "2"
    assert knob(page, "sequence_parallel").is_checked()
    assert page.locator(".cancel").is_enabled() and page.locator(".again").is_disabled()
    assert page.locator("progress").is_visible()
    page.locator(".cancel").click()
    assert {"kind": "cancel"} in wishes(page)


def test_a_refused_wish_brings_the_slider_back_and_the_same_sentence_is_said_again(browser: Browser) -> None:
    page = panel(browser)
    knob(page, "zero").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        assert wishes(page)
        page.evaluate("const k = model.get('knobs'); model.set('said', ''); model.set('knobs', []);"
                      "model.set('said', 'not here'); model.set('knobs', k)")  # fmt: skip
        assert knob(page, "zero").get_attribute("aria-valuetext") == "0"
        assert page.inner_text(".said") == "not here"


def test_the_source_of_times_is_one_switch(browser: Browser) -> None:
    page = panel(browser)
    page.get_by_label("Replayed").check()
    assert wishes(page) == [{"kind": "source", "value": "replayed"}]


def test_keys_in_the_panel_do_not_reach_the_page_around(browser: Browser) -> None:
    page = panel(browser)
    page.evaluate("globalThis.heard = 0; document.addEventListener('keydown', () => heard++)")
    knob(page, "zero").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("heard") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_the_panel(browser: Browser, scheme: str) -> None:
    page = panel(browser, color_scheme=scheme)
    if scheme == "dark":
        page.add_style_tag(content="body { background: #14171c; color: #e8ebef }")
    found = Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []


def test_on_a_narrow_page_nothing_is_cut(browser: Browser) -> None:
    page = panel(browser, viewport={"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 400


CHOICES = {
    "question": "How large is the bubble?", "choices": ["3/7", "3/4 <b>of it</b>"], "number": {}, "state": "open",
    "given": None, "hint": "", "feedback": "",
}  # fmt: skip


def test_a_question_wants_an_answer_before_it_is_locked(browser: Browser) -> None:
    page = shown(browser, "question.js", CHOICES)
    page.get_by_text("Lock in").click()
    assert "Answer first" in page.inner_text(".hint")
    page.get_by_label("3/7").check()
    page.keyboard.press("Enter")
    assert wishes(page) == [{"kind": "answer", "value": "3/7"}]


def test_answers_are_text_whatever_is_in_them_and_locked_once_given(browser: Browser) -> None:
    page = shown(browser, "question.js", CHOICES)
    assert page.locator("fieldset b").count() == 0
    page.evaluate("model.set('given', '3/7'); model.set('state', 'answered'); model.set('feedback', 'Right: 3/7.')")
    assert page.get_by_label("3/7").is_checked() and page.get_by_label("3/7").is_disabled()
    assert page.inner_text(".feedback") == "Right: 3/7."
    page.get_by_text("Ask me again").click()
    assert wishes(page) == [{"kind": "again"}]


def test_a_number_is_asked_for_with_its_unit_and_axe_is_content(browser: Browser) -> None:
    page = shown(browser, "question.js", CHOICES | {"choices": [], "number": {"unit": "%", "low": 0, "high": 100}})
    page.get_by_label("Your answer").fill("42.5")
    page.keyboard.press("Enter")
    assert wishes(page) == [{"kind": "answer", "value": 42.5}]
    found = Axe().run(page).response["violations"]
    assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []


def test_a_rank_can_be_chosen_by_keyboard_and_taken_back(browser: Browser) -> None:
    page = shown(browser, "rank_choice.js", {"ranks": [[0, "rank 0"], [1, "rank 1"]], "rank": None})
    page.get_by_label("Mark a rank").select_option("rank 1")
    assert wishes(page)[-1]["rank"] == 1
    page.get_by_label("Mark a rank").select_option("none")
    assert wishes(page)[-1]["rank"] is None
    page.evaluate("model.set('rank', 0)")
    assert page.get_by_label("Mark a rank").input_value() == "0"
