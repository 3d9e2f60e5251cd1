"""The host's time between two rows in a replay, by hand: who pays it, where it goes, and what it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.prediction.critical_path import critical_path, path_totals
from engine.prediction.replay.op_seconds import costs_on
from engine.prediction.replay.replay import replay_at
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.steps import step_rows
from engine.prediction.replay.timing import Seconds
from engine.recording.tables import Op, Recording
from lab import analysis
from tests.engine.clusters import DEVICE, INSIDE, cluster
from tests.engine.hand import JOB, S, child, priced, receive, reduction, send, wait, work
from tests.engine.written import recording_of


def with_host(host: float, **seconds: float) -> Callable[[StepRows], Seconds]:
    return lambda rows: replace(priced(**seconds)(rows), host=host)


def replayed(*rows: Op, host: float, **seconds: float) -> Recording:
    return replay_at(recording_of(rows), JOB, with_host(host, **seconds))


def spans(recording: Recording) -> dict[tuple[int, str], tuple[float, float]]:
    return {(row.rank, row.name): (row.start_ns / S, row.end_ns / S) for row in recording.op_rows()}


def test_it_comes_between_two_actions_and_never_inside_one() -> None:
    rows = [
        row
        for rank in (0, 1)
        for row in (
            work(rank, 0, "a"), work(rank, 1, "b", flops=10), child(rank, 2, parent=1, before=5), work(rank, 3, "c"),
        )
    ]  # fmt: skip
    out = replayed(*rows, host=0.25, a=1, b=2, c=1, all_reduce=0.5)
    found = spans(out)
    assert found[1, "a"] == (0, 1) and found[1, "b"] == (1.25, 3.75) and found[1, "c"] == (4, 5)
    assert found[1, "all_reduce"] == (2.25, 2.75)
    assert analysis.idle_by_cause(out, 0)[1] == pytest.approx(dict.fromkeys(analysis.CAUSES, 0.0) | {"host": 0.5})
    path = critical_path(out, 0)
    assert path_totals(path) == {"compute": 4 * S, "communication": S // 2, "idle": S // 2}


def test_the_host_of_a_waiting_rank_gets_ahead_of_its_device() -> None:
    found = spans(replayed(
        work(0, 0, "a"), send(0, 1, to=1), work(0, 2, "b"),
        receive(1, 0, source=0), wait(1, 1, ref=0), work(1, 2, "c"),
        host=0.25, a=1, b=4, c=2, send=0.5,
    ))  # fmt: skip
    assert found == {
        (0, "a"): (0, 1), (0, "send"): (1.25, 1.75), (0, "b"): (1.5, 5.5),
        (1, "recv"): (0, 1.75), (1, "wait1"): (0.25, 1.75), (1, "c"): (2, 4),
    }  # fmt: skip


def test_a_reduction_started_before_a_computation_runs_while_the_host_goes_on() -> None:
    rows = [
        row
        for rank in (0, 1)
        for row in (reduction(rank, 0, "reduce"), work(rank, 1, "a"), wait(rank, 2, ref=0), work(rank, 3, "b"))
    ]
    found = spans(replayed(*rows, host=0.25, reduce=1, a=2, b=1))
    assert found[0, "reduce"] == (0, 1) and found[0, "a"] == (0.25, 2.25)
    assert found[0, "wait2"] == (2.5, 2.5) and found[0, "b"] == (2.75, 3.75)


def test_a_device_that_waits_for_its_host_charges_it_on_every_row_and_ranks_that_share_it_take_turns() -> None:
    slow = replace(DEVICE, host_s=1e-3)
    here = cluster(1, devices=2, inside=INSIDE, shared=True, backend="gloo")
    here = replace(here, nodes=(replace(here.nodes[0], device=slow),))
    rows = step_rows(recording_of([work(rank, 0, "a") for rank in range(3)]), 0)
    assert costs_on(here, 3)(rows).host == pytest.approx([2e-3, 1e-3, 2e-3])
    assert costs_on(cluster(1), 3)(rows).host == pytest.approx([0, 0, 0])
