"""The dashboard in a real browser: from an empty store to a comparison, and links that show what their sender saw."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.dashboard import SLOW_MS, Server, Window, until

Open = Callable[..., Window]
WATCH = """() => { window.seen = new Set();
    const look = () => document.querySelectorAll("[data-testid=stAlert], [data-testid=stProgress]")
        .forEach(part => seen.add(part.innerText.replaceAll(/\\s+/g, " ")));
    setInterval(look, 50); }"""
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "µs": 1e-6, "ms": 1e-3, "s": 1}


def quantity(text: str) -> float:
    """The number at the beginning of a cell, in bytes or seconds, with its sign."""
    found = re.match(r"([+−]?)([\d.]+) (B|kB|MB|µs|ms|s)\b", text)
    assert found, text
    return float(found[2]) * UNITS[found[3]] * (-1 if found[1] == "−" else 1)


def summaries(runs: Path) -> dict[int, dict[str, Any]]:
    """By ZeRO stage, of the runs with four data ranks."""
    found = [json.loads(path.read_bytes()) for path in runs.glob("*-dp4*/summary.json")]
    stages = [int(re.search(r"-zero(\d)-", each["run"])[1]) for each in found]
    return dict(zip(stages, found, strict=True))


def cells(window: Window, line: str) -> list[str]:
    """A line of the table of numbers: of A, of B, their difference."""
    row = window.page.get_by_role("row").filter(has=window.page.get_by_text(line, exact=True))
    return [" ".join(text.split()) for text in row.get_by_role("cell").all_inner_texts()]


def check(found: list[str], first: float, other: float, verdict: str) -> None:
    """That a line says these two numbers, to the three digits that are shown, their difference, and which is better."""
    assert [quantity(text) for text in found[:2]] == pytest.approx([first, other], rel=0.006)
    assert quantity(found[2]) == pytest.approx(other - first, rel=0.006)
    assert found[2].endswith(verdict)


def peak(summary: dict[str, Any]) -> float:
    return float(max(rank["total_peak"] for rank in summary["memory"]["per_rank"]))


def data_bytes(summary: dict[str, Any]) -> float:
    return float(sum(row["logical_bytes"] for row in summary["communication"] if row["axis"] == "dp"))


def step_times(summary: dict[str, Any]) -> list[float]:
    """Of the two steps after the first, the shorter one before the longer one."""
    return sorted(step["seconds"] for step in summary["steps"][1:])


def test_from_an_empty_store_to_a_comparison_whose_numbers_are_those_of_the_runs(fresh: Server, window: Open) -> None:
    page = window(fresh)
    page.open()
    page.page.evaluate(WATCH)
    page.button("Run the demo").click()
    page.says("Equal to one process")
    seen = page.page.evaluate("[...seen].join('; ')")  # what was seen would be lost, had the page been loaded anew
    assert re.search(r"Starting|In the queue", seen) and re.search(r"step \d of 3", seen)
    assert page.metric("Steps of 3").inner_text() == "3"

    page.go("Launch")
    page.button("ZeRO-1 against ZeRO-3").click()
    page.button("Start 2 runs").click()
    compare = page.button("Compare them")
    expect(compare).to_be_enabled(timeout=SLOW_MS)
    compare.click()
    page.says("B with zero=1 → 3 cuts peak memory")
    page.says("loss of the last step", exact=True)

    first, other = (summaries(fresh.runs)[zero] for zero in (1, 3))
    assert page.query["base"] == first["run"] and page.query["runs"] == f"{first['run']},{other['run']}"
    check(cells(page, "peak memory of the fullest rank"), peak(first), peak(other), "✔ better")
    sent = cells(page, "bytes sent, data axis, a rank and step")
    check(sent, data_bytes(first), data_bytes(other), "✘ worse")
    (fast, slow), (other_fast, other_slow) = step_times(first), step_times(other)
    noise = 0.8 * (slow - fast + other_slow - other_fast)  # from the 10th to the 90th percentile of two values
    better = "✔ better" if other_fast < fast else "✘ worse"
    verdict = "≈ noise" if abs(other_fast - fast) <= noise else better
    took = cells(page, "step time")
    assert [quantity(text) for text in took[:2]] == pytest.approx([fast, other_fast], rel=0.006)
    assert took[2].endswith(verdict) or took[2] == "same"


def test_a_link_shows_another_window_the_same_comparison(dashboard: Server, window: Open) -> None:
    old, new = sorted(path.parent.name for path in dashboard.runs.glob("2*/run.json"))
    mine = window(dashboard)
    mine.open("compare", runs=f"{old},{new}")
    mine.choose("Baseline", "ZeRO-3")
    mine.says("B with zero=3 → 1")
    mine.choose("Times", "Replayed on toy-2x4")
    mine.page.get_by_text("On toy-2x4. Bubble").nth(1).wait_for()
    mine.ready()
    upper, lower = mine.timeline(0), mine.timeline(1)
    whole = upper.window
    assert lower.window == whole, "one axis, however long each takes"
    upper.press("w", "w", "d")
    mine.page.wait_for_url("**window=**")
    until(lambda: upper.window == lower.window != whole)
    lower.point(0.6)
    until(lambda: upper.cursor == lower.cursor != "")
    mine.ready()

    yours = window(dashboard)
    yours.page.goto(mine.page.url)
    yours.says("B with zero=3 → 1")
    yours.ready()
    assert yours.query == mine.query
    assert yours.query | {"window": ""} == {"runs": f"{old},{new}", "base": new, "cluster": "toy-2x4", "window": ""}
    until(lambda: yours.timeline(0).window == yours.timeline(1).window == upper.window)
    assert yours.box("Times").input_value() == "Replayed on toy-2x4"
    assert "ZeRO-3" in yours.box("Baseline").input_value()


def test_a_link_shows_another_window_the_same_rank_and_step(dashboard: Server, window: Open) -> None:
    old = min(path.parent.name for path in dashboard.runs.glob("2*/run.json"))
    mine = window(dashboard)
    mine.open("pipeline", run=old)
    mine.choose("Rank", "rank 2")
    mine.choose("Step", "step 0")
    mine.says("streams of step 0;")
    mine.ready()
    mine.timeline().press("w", "a")
    mine.page.wait_for_url("**window=**")
    yours = window(dashboard)
    yours.page.goto(mine.page.url)
    yours.says("streams of step 0;")
    until(lambda: yours.timeline().window == mine.timeline().window)
    yours.ready()
    assert yours.query == mine.query and (yours.query["rank"], yours.query["step"]) == ("2", "0")
    assert yours.box("Rank").input_value() == "rank 2"
    assert yours.page.locator(".sl-said").inner_text().startswith("rank 2 (")
