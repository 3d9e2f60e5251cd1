"""Critical paths by hand, and that they are paths: gapless, and as long as the step."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cluster.cluster import load_cluster
from engine.job.job import Job
from engine.prediction.critical_path import PathPiece, critical_path, path_totals
from engine.prediction.equivalent_ranks import representatives
from engine.prediction.replay.replay import replay, replay_at
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.timing import Seconds
from engine.recording.tables import Op
from tests.engine.hand import JOB, S, child, priced, receive, reduction, send, wait, work
from tests.engine.written import op, recording_of, uniform, written


def path(*rows: Op, **seconds: float) -> list[tuple[int, str, float, float]]:
    """(rank, what, start, end in seconds) of each piece of the replay's path."""
    pieces = critical_path(replay_at(recording_of(rows), JOB, priced(**seconds)))
    return [(p.rank, p.name, p.start_ns / S, p.end_ns / S) for p in pieces]


def test_it_goes_through_the_maker_of_a_message() -> None:
    rows = (
        work(0, 0, "a"), send(0, 1, to=1), work(0, 2, "b"), receive(1, 0, source=0), wait(1, 1, ref=0), work(1, 2, "c"),
    )  # fmt: skip
    found = path(*rows, a=1, b=1, c=2, send=0.5)
    assert found == [(0, "a", 0, 1), (1, "recv", 1, 1.5), (1, "c", 1.5, 3.5)]
    assert path(*rows, a=1, b=4, c=2, send=0.5) == [(0, "a", 0, 1), (0, "b", 1, 5)]


def test_it_goes_through_the_receiver_that_asked_late() -> None:
    found = path(
        send(0, 0, to=1), wait(0, 1, ref=0), work(0, 2, "c"), work(1, 0, "busy"), receive(1, 1, source=0),
        busy=3, send=0.5, c=1,
    )  # fmt: skip
    assert found == [(1, "busy", 0, 3), (0, "send", 3, 3.5), (0, "c", 3.5, 4.5)]


def test_it_goes_through_the_straggler_of_a_collective_in_the_middle_of_a_layer() -> None:
    rows = [
        row for r in (0, 1) for row in (work(r, 0, f"a{r}", flops=4), child(r, 1, 0, before=2), work(r, 2, f"b{r}"))
    ]
    found = path(*rows, a0=2, a1=4, b0=9, all_reduce=0.5)
    assert found == [(1, "a1", 0, 2), (0, "all_reduce", 2, 2.5), (0, "a0", 2.5, 3.5), (0, "b0", 3.5, 12.5)]


def test_it_goes_through_what_a_stream_was_busy_with() -> None:
    rows = [
        row
        for r in (0, 1)
        for row in (work(r, 0, "a"), reduction(r, 1, "x"), work(r, 2, "b"), reduction(r, 3, "y"), wait(r, 4, ref=3))
    ]
    assert path(*rows, a=1, b=1, x=5, y=2) == [(0, "a", 0, 1), (0, "x", 1, 6), (0, "y", 6, 8)]


def test_a_measured_gap_is_idle_time_of_the_path() -> None:
    rows = [work(0, 0, "a", start_ns=10, end_ns=20), work(0, 1, "b", start_ns=25, end_ns=30)]
    found = critical_path(recording_of(rows))
    assert [(p.what, p.start_ns, p.end_ns) for p in found] == [
        ("compute", 10, 20),
        ("idle", 20, 25),
        ("compute", 25, 30),
    ]
    assert path_totals(found) == {"compute": 15, "communication": 0, "idle": 5}


def test_a_rank_that_begins_late_is_idle_time_of_the_path() -> None:
    late = [work(0, 0, "a", start_ns=10, end_ns=12), work(1, 0, "b", start_ns=15, end_ns=30)]
    assert critical_path(recording_of(late))[0] == PathPiece(1, None, 10, 15, "idle", "before its first operation")


PLANS: list[dict[str, Any]] = [
    {"dp": 2, "tp": 2, "pp": 2, "zero": 1},
    {"dp": 2, "tp": 2, "pp": 2, "zero": 3, "sequence_parallel": True, "tied": True},
    {"pp": 4, "layers": 8, "schedule": "interleaved", "chunks": 2, "microbatches": 8, "overlap": False},
]


@pytest.mark.parametrize("options", PLANS)
@pytest.mark.parametrize("name", ["a100-dgx", "toy-2x4"])
def test_in_a_replay_it_is_gapless_and_all_of_the_step(options: dict[str, Any], name: str) -> None:
    job = Job.from_options(**options)
    out = replay(written(job), job, load_cluster(name))
    found = critical_path(out)
    assert found[0].start_ns == 0 and found[-1].end_ns == max(out.ops["end_ns"].to_pylist())
    assert all(a.end_ns == b.start_ns for a, b in pairwise(found))
    assert path_totals(found)["idle"] == 0


def test_representatives_have_the_path_of_all() -> None:
    job = Job.from_options(dp=4, tp=2, pp=2, zero=1)
    cluster = replace(load_cluster("a100-dgx"), slow_ranks={5: 0.5})
    like = dict(enumerate(representatives(job, cluster)))
    few = replay(written(job, ranks=sorted(set(like.values()))), job, cluster, ranks_like=like)
    everybody = replay(written(job), job, cluster)
    assert path_totals(critical_path(few)) == path_totals(critical_path(everybody))


SMALL = Job.from_options(dp=2, tp=2, pp=2, zero=2, microbatches=3, layers=4, batch=6)
WRITTEN = written(SMALL)
COSTS = st.fixed_dictionaries({name: st.integers(0, 1000) for name in ("dp", "tp", "pp_act", "pp_grad", "world")})


@settings(max_examples=30, deadline=None)
@given(COSTS, st.data())
def test_the_step_grows_by_what_an_operation_on_the_path_grows(talk: dict[str, int], data: st.DataObject) -> None:
    costs = uniform(1e-3, 2e-3, **{name: n * 1e-6 for name, n in talk.items()})
    out = replay_at(WRITTEN, SMALL, costs)
    piece = data.draw(st.sampled_from([p for p in critical_path(out) if p.what == "compute"]))

    def dearer(rows: StepRows) -> Seconds:
        found = costs(rows)
        this = (rows.rank == piece.rank) & (rows.ints("seq") == piece.seq)
        return Seconds(np.where(this, found.own * 2, found.own), found.together)

    cost = {"forward": 1, "backward": 2}[piece.name.split()[0]] * S // 1000
    on_path = sum(p.end_ns - p.start_ns for p in critical_path(out) if (p.rank, p.seq) == (piece.rank, piece.seq))
    grown = max(replay_at(WRITTEN, SMALL, dearer).ops["end_ns"].to_pylist()) - max(out.ops["end_ns"].to_pylist())
    assert min(on_path, cost) <= grown <= cost


def test_a_measured_step_with_a_wait_for_nothing_is_followed_too() -> None:
    rows = [work(0, 0, "a", start_ns=0, end_ns=5), op(rank=0, seq=1, kind="wait", start_ns=5, end_ns=9)]
    assert [p.what for p in critical_path(recording_of(rows))] == ["compute", "idle"]
