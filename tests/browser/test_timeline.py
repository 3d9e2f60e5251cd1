"""The canvas timeline in a real browser: what keys and the pointer do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.browser.timeline_page import Open, column, heard, picture, press, said


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
