"""Linked views without a browser: what cannot be shown is refused, and a page cannot mark what is not there."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

import lab
from lab.facade import Run
from lab.views import figures

NAMES = ("timeline", "grid", "memory", "matrix", "bubble", "activity")


@pytest.fixture(scope="module")
def run() -> Run:
    return lab.simulate(pp=2)


@pytest.mark.parametrize("what", [None, "latest", 5])
def test_what_is_no_run_is_not_shown(run: Run, what: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a run: use what `lab\.run` or `lab\.load` returns"):
        lab.view(what)
    with pytest.raises(ValueError, match="is not a run"):
        lab.compare(run, what)


def test_a_prediction_of_another_job_is_not_laid_over_a_run(run: Run) -> None:
    lab.view(run, predicted=run.replay("toy-2x4"))
    with pytest.raises(ValueError, match="is of another model or plan"):
        lab.view(run, predicted=lab.simulate(dp=2))


@pytest.mark.parametrize("rank", ["a", -1, 2, 1.5])
def test_a_rank_that_a_run_does_not_have_is_refused(run: Run, rank: Any) -> None:
    with pytest.raises(ValueError, match="is not of this run: its ranks are 0 to 1"):
        lab.view(run, rank=rank)


def test_a_page_that_marks_a_rank_that_is_not_there_marks_none(run: Run) -> None:
    shown = lab.view(run, *NAMES, rank=1)
    assert shown.timeline is not None
    for name in ("choice", "timeline"):
        shown.select(1)
        trait = "rank" if name == "choice" else "selected_rank"
        setattr(getattr(shown, name), trait, 99)
        assert (shown.rank, shown.choice.rank, shown.timeline.selected_rank) == (None, None, None)
    shown.timeline.cursor_ms = float("nan")


@pytest.mark.parametrize(
    "click",
    [
        None, [], {"kind": "click"}, {"kind": "click", "id": 1, "x": "q", "y": None},
        {"kind": "click", "id": "-7", "x": -3, "y": "rank"},
        {"kind": "click", "id": "999999999", "x": 1e308, "y": "rank x"},
        {"kind": "click", "id": "²", "x": "a", "y": "rank 99"},
    ],
)  # fmt: skip
def test_clicks_that_make_no_sense_mark_nothing(run: Run, click: Any, caplog: pytest.LogCaptureFixture) -> None:
    shown = lab.view(run, *NAMES)
    for plot in shown.plots.values():
        plot._handle_custom_msg(click, [])
    assert shown.rank is None
    assert not caplog.records


def test_a_rank_chosen_while_another_run_comes_leaves_one_run_in_all_views(run: Run) -> None:
    larger = lab.simulate(pp=2, dp=2)
    shown = lab.view(run, *NAMES)
    done = threading.Event()

    def choose() -> None:
        while not done.is_set():
            for rank in (3, 0, None):
                shown.select(rank)

    thread = threading.Thread(target=choose)
    thread.start()
    for _ in range(3):
        shown.show(larger, runs=(larger,))
        shown.show(run, runs=(run,))
    done.set()
    thread.join(60)
    assert shown._scene is not None and shown._scene.run is run
    assert shown.rank in (None, 0)


def test_a_picture_may_be_any_callable_and_what_is_none_is_refused(run: Run) -> None:
    lab.picture(partial(figures.memory, run))
    with pytest.raises(ValueError, match="a figure is a function that makes one"):
        lab.picture(None)


def test_one_knob_and_one_view_may_go_without_a_comma() -> None:
    with pytest.raises(ValueError, match="no knob called 'speed'"):
        lab.explore(knobs="speed")
    with pytest.raises(ValueError, match="no view called 'speed'"):
        lab.explore(views="speed")
