"""Replays against hand calculations, the schedules' formulas, and what any replay must keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.job.job import Job
from engine.job.rules import check
from engine.prediction import formulas
from engine.prediction.replay.replay import replay_at
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.timing import Seconds
from engine.recording.columns import table_of
from engine.recording.tables import MemoryRow, Op, Recording
from lab import analysis
from tests.engine.hand import JOB, S, child, priced, receive, reduction, send, wait, work
from tests.engine.written import op, recording_of, uniform, written

Spans = dict[tuple[int, str], tuple[float, float]]


def spans(recording: Recording) -> Spans:
    """(rank, name) → (start, end) in seconds."""
    return {(row.rank, row.name): (row.start_ns / S, row.end_ns / S) for row in recording.op_rows()}


def replayed(*rows: Op, **seconds: float) -> Spans:
    return spans(replay_at(recording_of(rows), JOB, priced(**seconds)))


# -- by hand


def test_a_message_goes_when_it_was_sent_and_its_receiver_computes_when_it_is_there() -> None:
    found = replayed(
        work(0, 0, "a"), send(0, 1, to=1), work(0, 2, "b"),
        receive(1, 0, source=0), wait(1, 1, ref=0), work(1, 2, "c"),
        a=1, b=4, c=2, send=0.5,
    )  # fmt: skip
    assert found == {
        (0, "a"): (0, 1), (0, "send"): (1, 1.5), (0, "b"): (1, 5),
        (1, "recv"): (0, 1.5), (1, "wait1"): (0, 1.5), (1, "c"): (1.5, 3.5),
    }  # fmt: skip


def test_a_message_waits_until_its_receiver_asks_for_it() -> None:
    found = replayed(
        send(0, 0, to=1), wait(0, 1, ref=0), work(1, 0, "busy"), receive(1, 1, source=0), wait(1, 2, ref=1),
        busy=3, send=0.5,
    )  # fmt: skip
    assert found[0, "wait1"] == found[0, "send"] == (0, 3.5) and found[1, "recv"] == (3, 3.5)


def test_messages_of_one_kind_between_two_ranks_go_one_after_the_other() -> None:
    found = replayed(
        *(send(0, k, to=1, name=f"send{k}", micro=k) for k in range(2)),
        *(receive(1, k, source=0, name=f"recv{k}", micro=k) for k in range(2)),
        send0=2, send1=3,
    )  # fmt: skip
    assert found[0, "send0"] == found[1, "recv0"] == (0, 2) and found[0, "send1"] == found[1, "recv1"] == (2, 5)


def test_a_collective_begins_when_its_straggler_is_there() -> None:
    rows = [row for r in (0, 1) for row in (work(r, 0, f"a{r}"), reduction(r, 1, "sum"), wait(r, 2, ref=1))]
    found = replayed(*rows, a0=1, a1=4, sum=2)
    assert found[0, "sum"] == found[0, "wait2"] == (1, 6) and found[1, "sum"] == (4, 6)


def test_a_reduction_runs_under_the_computation_after_it() -> None:
    rows = [
        row for r in (0, 1) for row in (work(r, 0, "a"), reduction(r, 1, "sum"), work(r, 2, "b"), wait(r, 3, ref=1))
    ]
    found = replayed(*rows, a=1, b=5, sum=2)
    assert found[0, "sum"] == (1, 3) and found[0, "b"] == (1, 6) and found[0, "wait3"] == (6, 6)


def test_collectives_of_one_stream_go_one_after_the_other() -> None:
    rows = [row for r in (0, 1) for row in (reduction(r, 0, "sum0"), work(r, 1, "a"), reduction(r, 2, "sum1"))]
    found = replayed(*rows, a=1, sum0=4, sum1=2)
    assert found[1, "sum0"] == (0, 4) and found[1, "sum1"] == (4, 6)


def test_a_collective_inside_a_layer_comes_where_its_flops_say_and_blocks() -> None:
    rows = [row for r in (0, 1) for row in (work(r, 0, f"a{r}", flops=100), child(r, 1, parent=0, before=50))]
    found = replayed(*rows, a0=2, a1=4, all_reduce=0.5)
    assert found[0, "all_reduce"] == (1, 2.5) and found[0, "a0"] == (0, 3.5)
    assert found[1, "all_reduce"] == (2, 2.5) and found[1, "a1"] == (0, 4.5)


def test_a_collective_inside_an_action_without_flops_comes_at_its_end() -> None:
    rows = [row for r in (0, 1) for row in (work(r, 0, "a"), child(r, 1, parent=0, before=0))]
    assert replayed(*rows, a=2, all_reduce=1) == {
        (r, name): at for r in (0, 1) for name, at in (("a", (0, 3)), ("all_reduce", (2, 3)))
    }


def test_a_deadlock_is_refused_with_the_action_and_what_it_waits_for() -> None:
    rows = [
        send(0, 0, to=1), wait(0, 1, ref=0), op(rank=0, seq=2, name="back", kind="recv_grad", stream="pp_grad",
        op="message", stage=0, microbatch=0, peers=(0, 1)),
        op(rank=1, seq=0, name="forth", kind="send_grad", stream="pp_grad", op="message", stage=1, microbatch=0,
        peers=(1, 0)), wait(1, 1, ref=0), receive(1, 2, source=0),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="rank 0 is stuck in wait1, waiting for rank 1 to get to recv"):
        replayed(*rows)


def test_messages_asked_for_in_another_order_than_sent_are_refused() -> None:
    rows = [send(0, k, to=1, name=f"send{k}", micro=k) for k in range(2)]
    rows += [receive(1, 0, source=0, name="late", micro=1), wait(1, 1, ref=0), receive(1, 2, source=0, micro=0)]
    with pytest.raises(ValueError, match="rank 1 is stuck in wait1, waiting for late, which is behind a message"):
        replayed(*rows)


def test_a_step_that_a_rank_did_not_complete_is_refused() -> None:
    with pytest.raises(ValueError, match="sum on rank 0 waits for rank 1, which never takes part in it"):
        replayed(reduction(0, 0, "sum"), work(1, 0, "a"))


def test_a_step_that_was_not_recorded_is_refused() -> None:
    with pytest.raises(ValueError, match=r"step 7 was not recorded: there are steps \[0\]"):
        replay_at(recording_of([work(0, 0, "a")]), JOB, priced(), step=7)


def test_memory_keeps_its_place_among_the_operations() -> None:
    rows = [work(0, 0, "a", start_ns=100, end_ns=200), work(0, 1, "b", start_ns=200, end_ns=250)]
    held = [MemoryRow(-1, 0, 10, "params", 7), MemoryRow(0, 0, 150, "activations", 1),
            MemoryRow(0, 0, 201, "activations", 2), MemoryRow(0, 0, 251, "activations", 3)]  # fmt: skip
    recording = replace(recording_of(rows), memory=table_of("memory", held))
    memory = replay_at(recording, JOB, priced(a=3, b=1)).memory
    assert memory["time_ns"].to_pylist() == [-1, 0, 3 * S, 4 * S] and memory["bytes"].to_pylist() == [7, 1, 2, 3]


# -- formulas

ONE_CHUNK = (("naive", 1), ("gpipe", 1), ("1f1b", 1), ("zb-h1", 1))
PLANS = [
    {"pp": p, "microbatches": m, "schedule": schedule, "chunks": v, "layers": p * v, "batch": m}
    for p in range(1, 7)
    for m in (1, 2, 3, 5, 6, 8, 12)
    for schedule, v in (*ONE_CHUNK, ("interleaved", 2), ("interleaved", 3))
    if schedule != "interleaved" or (m % p == 0 and p > 1)
    if schedule != "zb-h1" or m >= p > 1
]


@pytest.mark.parametrize("overlap", [True, False])
def test_the_bubble_is_that_of_the_formula_where_communication_is_free(overlap: bool) -> None:
    for options in PLANS:
        job = Job.from_options(**options, overlap=overlap)
        check(job)
        out = replay_at(written(job), job, uniform())
        formula = formulas.bubble_formula(job)
        assert formula is not None and analysis.bubble(out, job, 0) == pytest.approx(float(formula), abs=1e-12), job


def test_other_axes_leave_the_bubble_as_it_is() -> None:
    for more in ({"zero": 1}, {"zero": 3}, {"zero": 2, "tied": True}):
        job = Job.from_options(dp=2, tp=2, pp=3, microbatches=5, layers=6, batch=10, **more)
        out = replay_at(written(job), job, uniform())
        assert analysis.bubble(out, job, 0) == pytest.approx(2 / 7, abs=1e-12)
        assert sum(idle["host"] for idle in analysis.idle_by_cause(out, 0).values()) == 0


# -- what any replay keeps

COSTS = st.fixed_dictionaries({name: st.integers(0, 1000) for name in ("dp", "tp", "pp_act", "pp_grad", "world")})
SMALL = Job.from_options(dp=2, tp=2, pp=2, zero=2, microbatches=3, layers=4, batch=6)
WRITTEN = written(SMALL)


def ends(costs: Callable[[StepRows], Seconds]) -> Any:
    return replay_at(WRITTEN, SMALL, costs).ops["end_ns"].to_numpy()


@settings(max_examples=30, deadline=None)
@given(COSTS, st.integers(1, 50))
def test_costs_that_are_k_times_as_high_give_times_that_are_k_times_as_late(talk: dict[str, int], k: int) -> None:
    once = ends(uniform(1e-3, 2e-3, **{name: n * 1e-6 for name, n in talk.items()}))
    times = ends(uniform(k * 1e-3, k * 2e-3, **{name: n * k * 1e-6 for name, n in talk.items()}))
    assert (abs(times - k * once) <= k).all()  # both are rounded to ns


@settings(max_examples=30, deadline=None)
@given(COSTS, st.integers(0, WRITTEN.ops.num_rows - 1), st.integers(1, 10_000))
def test_a_dearer_operation_makes_nothing_earlier(talk: dict[str, int], row: int, more: int) -> None:
    costs = uniform(1e-3, 2e-3, **{name: n * 1e-6 for name, n in talk.items()})

    def dearer(rows: StepRows) -> Seconds:
        found = costs(rows)
        extra = np.where(np.arange(len(rows)) == row, more * 1e-6, 0)
        return Seconds(found.own + extra, found.together + extra)

    assert (ends(dearer) >= ends(costs)).all()


@settings(max_examples=30, deadline=None)
@given(COSTS)
def test_boxes_of_one_stream_and_rank_follow_one_another(talk: dict[str, int]) -> None:
    out = replay_at(WRITTEN, SMALL, uniform(1e-3, 2e-3, **{name: n * 1e-6 for name, n in talk.items()}))
    over: dict[tuple[Any, ...], int] = {}
    for row in out.op_rows():
        stream = (
            row.rank,
            row.kind if row.op == "message" else row.stream,
            *(row.peers if row.op == "message" else ()),
        )
        if row.parent < 0 or row.stream != "compute":
            assert over.get(stream, 0) <= row.start_ns <= row.end_ns, row
            over[stream] = row.end_ns
