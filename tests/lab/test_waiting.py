"""The sentence about who waits most."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from lab.analysis.recorded_run import HasRecording
from lab.analysis.step.longest_idle import waits_most
from tests.lab.synthetic import message, op, recording_of


def said(*ops: object) -> str:
    return waits_most(cast(HasRecording, SimpleNamespace(recording=recording_of(cast(list, ops)))), 0)


def work(rank: int, seq: int, start: int, end: int) -> object:
    return op(rank=rank, seq=seq, kind="forward", name="forward", start_ns=start, end_ns=end, cpu_ns=end - start)


def test_the_rank_that_stands_idle_longest_is_named_with_its_share_and_the_largest_cause() -> None:
    # rank 0 works all 1000 ns; rank 1 waits 600 for a message, 500 of them until it is sent, and works 400
    wait = op(rank=1, seq=1, kind="wait", start_ns=0, end_ns=600, ref=0)
    ops = [work(0, 0, 0, 1000), *message(0, 0, 500, 600), wait, work(1, 2, 600, 1000)]
    assert said(*ops) == "Idle longest: rank 1, 60 % of the step, 83 % of that waiting for another rank to compute."


def test_where_nobody_waits_nothing_is_said() -> None:
    assert said(work(0, 0, 0, 1000), work(1, 0, 0, 1000)) == ""
