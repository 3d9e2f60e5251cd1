"""The gap between a measured step and its replay: parts by hand, sums that must be exact, and the sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.job.job import Job
from engine.prediction.critical_path import PathPiece
from engine.prediction.replay.replay import replay
from engine.recording.tables import Op, Recorded
from lab import analysis
from lab.analysis import gap
from lab.analysis.step.path import legs
from tests.engine.clusters import cluster
from tests.lab.synthetic import LIFELIKE, op, recording_of, synthetic


def row(rank: int, seq: int, kind: str, start: int, end: int, cpu: int = 0) -> Op:
    return op(rank=rank, seq=seq, kind=kind, name=f"{kind} block0 mb0", start_ns=start, end_ns=end, cpu_ns=cpu)


def inside(seq: int, parent: int, start: int, end: int) -> Op:
    return op(rank=0, seq=seq, parent=parent, kind="collective", stream="tp", start_ns=start, end_ns=end)


MEASURED = recording_of([
    row(0, 0, "forward", 0, 100, cpu=60), inside(1, 0, 20, 50),
    row(0, 2, "backward", 110, 200, cpu=90), row(0, 3, "step", 200, 220, cpu=15),
    row(1, 0, "forward", 0, 50, cpu=50), row(1, 1, "wait", 50, 120), row(1, 2, "backward", 120, 180, cpu=60),
])  # fmt: skip
PREDICTED = recording_of([
    row(0, 0, "forward", 0, 80), inside(1, 0, 20, 40), row(0, 2, "backward", 80, 150), row(0, 3, "step", 150, 160),
    row(1, 0, "forward", 0, 40), row(1, 1, "wait", 40, 90), row(1, 2, "backward", 90, 160),
])  # fmt: skip


def parts(found: analysis.Gap, rank: int) -> dict[str, tuple[int, int]]:
    """The parts that are not empty."""
    return {p.name: (p.measured, p.predicted) for p in found.by_rank[rank] if p.measured or p.predicted}


def test_every_nanosecond_of_both_steps_is_in_one_part() -> None:
    found = gap(MEASURED, PREDICTED, 0)
    assert (found.measured, found.predicted, found.difference) == (220, 160, 60)
    assert parts(found, 0) == {
        "forward": (60, 60),  # 100 less 30 in the collective, of the other 70 it had a core for 60
        "backward": (90, 70), "step": (15, 10), "layer": (30, 20), "core": (10 + 5, 0), "host": (10, 0),
    }  # fmt: skip
    assert parts(found, 1) == {"forward": (50, 40), "backward": (60, 70), "transfer": (70, 50), "done": (40, 0)}
    assert [sum(p.difference for p in found.by_rank[rank]) for rank in (0, 1)] == [60, 60]
    assert found.error == pytest.approx(-60 / 220)


def test_the_parts_of_all_ranks_add_up_to_the_difference_times_the_ranks() -> None:
    found = gap(MEASURED, PREDICTED, 0)
    assert sum(part.difference for part in found.total) == 2 * 60
    total = {part.name: part.difference for part in found.total}
    assert (total["forward"], total["backward"], total["done"], total["core"]) == (10, 10, 40, 15)


def test_the_sentence_names_the_largest_part_with_both_of_its_times() -> None:
    slow = recording_of([row(0, 0, "forward", 0, 9_000_000), row(0, 1, "backward", 9_000_000, 47_000_000)])
    fast = recording_of([row(0, 0, "forward", 0, 10_000_000), row(0, 1, "backward", 10_000_000, 39_000_000)])
    assert gap(slow, fast, 0).sentence() == (
        "The step took 47 ms where 39 ms were predicted. Largest part: backward took 38 ms where 29 ms were predicted,"
        " 9 ms more: the operators did not run at the speed that the cluster describes."
    )
    assert "backward took 29 ms where 38 ms were predicted, 9 ms less" in gap(fast, slow, 0).sentence()
    assert gap(slow, slow, 0).sentence().endswith("no part of it differs.")


def test_a_part_that_nobody_predicted_is_called_so() -> None:
    late = recording_of([row(0, 0, "forward", 0, 1_000_000), row(0, 1, "backward", 3_000_000, 4_000_000)])
    soon = recording_of([row(0, 0, "forward", 0, 1_000_000), row(0, 1, "backward", 1_000_000, 2_000_000)])
    assert "or no free core) took 2 ms where none was predicted, 2 ms more" in gap(late, soon, 0).sentence()


@pytest.mark.parametrize(
    "options",
    [
        {"dp": 2, "tp": 2, "pp": 2, "zero": 1},
        {"pp": 4, "layers": 8, "schedule": "interleaved", "chunks": 2},
        {"dp": 2, "zero": 3},
        {"tp": 2, "sequence_parallel": True},
    ],
)
def test_the_differences_of_every_rank_add_up_exactly_on_whole_steps(options: dict[str, object]) -> None:
    job = Job.from_options(**options)
    measured = synthetic(job, LIFELIKE)
    predicted = replay(measured, job, cluster(2))
    found = gap(measured, predicted, 2)  # the replay holds another step
    assert sorted(found.by_rank) == list(range(job.world_size))
    for rank_parts in found.by_rank.values():
        assert tuple(part.name for part in rank_parts) == analysis.PARTS
        assert sum(part.measured for part in rank_parts) == found.measured
        assert sum(part.predicted for part in rank_parts) == found.predicted


def test_where_a_replay_records_representatives_they_answer_for_the_others() -> None:
    only = Recorded(PREDICTED.ops.slice(0, 4), PREDICTED.memory, PREDICTED.metrics, {0: 0, 1: 0})
    found = gap(MEASURED, only, 0)
    assert [part.predicted for part in found.by_rank[1]] == [part.predicted for part in found.by_rank[0]]


def test_the_busy_parts_are_those_of_the_other_figures() -> None:
    from lab.analysis.step.time_shares import time_shares

    shares = time_shares(MEASURED, 0)
    for rank, found in gap(MEASURED, PREDICTED, 0).by_rank.items():
        ns = {part.name: part.measured / 1e9 for part in found}
        assert shares[rank]["core"] == pytest.approx(ns["core"]) and shares[rank]["layer"] == pytest.approx(ns["layer"])
        assert shares[rank]["host"] == pytest.approx(ns["host"])


def test_a_replay_without_a_step_is_refused() -> None:
    with pytest.raises(analysis.NoStep, match="the replay holds no step"):
        gap(MEASURED, recording_of(), 0)


def piece(rank: int, start: int, end: int, what: str, name: str) -> PathPiece:
    return PathPiece(rank, None, start, end, what, name)


def test_the_legs_of_a_path_join_what_one_rank_does_on_end_and_swallow_tiny_gaps() -> None:
    path = [
        piece(0, 0, 40, "compute", "a"), piece(0, 40, 41, "idle", "gap"), piece(0, 41, 60, "compute", "b"),
        piece(0, 60, 70, "communication", "send"), piece(1, 70, 90, "compute", "c"), piece(1, 90, 120, "idle", "gap"),
    ]  # fmt: skip
    found = legs(path, shortest_ns=5)
    assert [(leg.rank, leg.what, leg.start_ns, leg.end_ns, leg.words) for leg in found] == [
        (0, "compute", 0, 60, "a … b"), (0, "communication", 60, 70, "send"),
        (1, "compute", 70, 90, "c"), (1, "idle", 90, 120, "gap"),
    ]  # fmt: skip
    assert len(legs(path)) == 6
    assert legs([replace(path[0])]) and not legs([])
