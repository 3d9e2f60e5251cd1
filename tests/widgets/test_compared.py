"""Runs side by side: only what differs is listed, and every change is said against the first."""

from __future__ import annotations

import html

import pytest

import lab
from lab.analysis.comparison import lines
from lab.analysis.comparison.lines import Line
from lab.analysis.comparison.text import explain
from lab.facade import Run
from lab.wording import nbytes, seconds


def simulated(**options: object) -> Run:
    return lab.simulate(cluster="toy-2x4", **options)


@pytest.fixture(scope="module")
def pair() -> tuple[Run, Run]:
    return simulated(dp=4), simulated(dp=4, zero=1)


def test_only_the_settings_that_differ_are_listed(pair: tuple[Run, Run]) -> None:
    assert lines.settings(pair) == {"zero": (0, 1)}


def test_zero_1_on_four_replicas_keeps_a_quarter_of_the_optimizer_state(pair: tuple[Run, Run]) -> None:
    found = {line.name: line for line in lines.lines(pair)}
    whole, quarter = found["optimizer state, fullest rank"].values
    assert whole is not None and quarter == pytest.approx(whole / 4, rel=0.01)  # ZeRO, table 1
    assert "−75 %)" in found["optimizer state, fullest rank"].change(1).replace("\xa0", " ")


def test_a_reduction_and_a_gather_move_as_many_bytes_as_an_all_reduce(pair: tuple[Run, Run]) -> None:
    found = {line.name: line.values for line in lines.lines(pair)}
    before, after = found["bytes sent, data axis, a rank and step"]
    assert before is not None and after == pytest.approx(before, rel=0.001)


def test_changes_are_signed_and_said_in_the_unit_and_in_percent() -> None:
    assert Line("t", (0.010, 0.008), seconds).change(1) == "−2 ms (−20 %)"
    assert Line("b", (1000.0, 3000.0), nbytes).change(1) == "+2 kB (+200 %)"
    assert Line("b", (5.0, 5.0), nbytes).change(1) == "same"
    assert Line("b", (0.0, 5.0), nbytes).change(1) == "+5 B"
    assert Line("b", (None, 5.0), nbytes).change(1) == ""


def test_timelines_of_a_comparison_zoom_together(pair: tuple[Run, Run]) -> None:
    shown = lab.compare(*pair)
    groups = {timeline.group for timeline in shown.timelines}
    assert len(shown.timelines) == 2 and len(groups) == 1 and "" not in groups
    assert len({timeline.group for timeline in lab.compare(*pair).timelines} | groups) == 2


def test_the_page_holds_marks_with_their_words_and_the_sentences(pair: tuple[Run, Run]) -> None:
    page = html.unescape(lab.compare(*pair).children[0].value)
    assert "✔ better</span>" in page and "than A" in page
    assert all(sentence in page for sentence in explain(pair)) and "B with zero=0 → 1 cuts peak memory" in page


def test_one_run_or_seven_cannot_be_compared(pair: tuple[Run, Run]) -> None:
    for runs in ((pair[0],), (pair[0],) * 7):
        with pytest.raises(ValueError, match="name two to 6"):
            lab.compare(*runs)
