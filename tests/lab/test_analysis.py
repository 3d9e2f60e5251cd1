"""The analyses against hand calculations on tiny recordings, the dry run's exact fractions, and published
formulas.
"""

from __future__ import annotations

import time
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from engine.job.job import Job
from engine.program.compile import compile_job
from engine.program.dryrun import dry_run
from engine.recording.tables import Op, Recorded, Recording
from lab import analysis
from lab.analysis.step.time_shares import time_shares
from lab.views.figures.pipeline.bubble import shares_title
from tests.lab.synthetic import LIFELIKE, Costs, Synthesis, message, op, recording_of, synthetic

SCHEDULES: list[dict[str, Any]] = [
    {"pp": 2, "schedule": "gpipe", "microbatches": 4},
    {"pp": 4, "schedule": "gpipe", "microbatches": 8, "layers": 4},
    {"pp": 2, "schedule": "1f1b", "microbatches": 4, "dp": 2, "tp": 2, "zero": 1},
    {"pp": 4, "schedule": "1f1b", "microbatches": 8, "layers": 8},
    {"pp": 2, "schedule": "interleaved", "chunks": 2, "microbatches": 4},
    {"pp": 4, "schedule": "interleaved", "chunks": 2, "microbatches": 4, "layers": 8},
    {"pp": 4, "schedule": "naive", "microbatches": 2},
    {"pp": 4, "schedule": "zb-h1", "microbatches": 8},
    {"pp": 2, "schedule": "zb-v", "chunks": 2, "microbatches": 4},
    {"pp": 1, "dp": 2, "zero": 2},
]


def compute(rank: int, seq: int, start: int, end: int, kind: str = "forward", **more: Any) -> Op:
    return op(rank=rank, seq=seq, kind=kind, name=f"{kind} block{rank}", start_ns=start, end_ns=end, **more)


# -- which step


def test_the_step_shown_is_the_median_of_those_after_the_first() -> None:
    lengths = [900, 50, 10, 70]  # the first would be in the middle if it counted
    ops = [compute(0, 0, 10_000 * k, 10_000 * k + n, "step", step=k) for k, n in enumerate(lengths)]
    assert analysis.typical_step(recording_of(ops)) == 1


def test_a_step_some_rank_did_not_complete_is_not_shown() -> None:
    done = [compute(rank, 0, 100 * k, 100 * k + 50, "step", step=k) for k in range(2) for rank in range(2)]
    half = [compute(0, 0, 300, 310, "step", step=2)]
    assert analysis.typical_step(recording_of(done + half)) == 1


def test_a_run_with_one_step_shows_that_and_a_run_without_any_shows_none() -> None:
    assert analysis.typical_step(recording_of([compute(0, 0, 0, 5, "step")])) == 0
    assert analysis.typical_step(recording_of([compute(0, 0, 0, 5, "forward")])) == 0
    assert analysis.typical_step(recording_of()) is None


def test_a_step_lasts_from_the_first_start_to_the_last_end_on_any_compute_stream() -> None:
    late = op(rank=1, seq=1, kind="reduce", stream="dp", start_ns=300, end_ns=900)
    recording = recording_of([compute(0, 0, 100, 250), compute(1, 0, 130, 400), late])
    assert analysis.step_window(recording, 0) == (100, 400)


def test_asking_for_a_step_that_was_not_recorded_says_which_ones_were() -> None:
    with pytest.raises(analysis.NoStep, match=r"step 7 .* \[0\]"):
        analysis.step_window(recording_of([compute(0, 0, 0, 5)]), 7)


# -- waiting for a core


def test_waiting_for_a_core_is_what_computing_takes_beyond_its_processor_time() -> None:
    # 100 ns with a collective of 30 in it leave 70 of computing, of which the thread had a core for 50
    ops = [
        compute(0, 0, 0, 100, cpu_ns=50),
        op(rank=0, seq=1, parent=0, kind="collective", stream="tp", start_ns=20, end_ns=50),
        compute(1, 0, 0, 30, cpu_ns=30),
    ]
    assert analysis.core_wait(recording_of(ops), 0) == pytest.approx(20 / 100)
    shares = time_shares(recording_of(ops), 0)
    assert {name: shares[0][name] for name in ("computing", "core", "layer")} == {
        "computing": 50 / 1e9, "core": 20 / 1e9, "layer": 30 / 1e9,
    }  # fmt: skip
    assert shares[1]["core"] == 0
    assert "waiting for a core 10 %" in shares_title(shares)


def test_without_processor_times_nobody_says_who_waited_for_a_core() -> None:
    assert analysis.core_wait(recording_of([compute(0, 0, 0, 100)]), 0) is None


# -- bubble and idle time


@pytest.mark.parametrize("options", SCHEDULES, ids=lambda o: "-".join(map(str, o.values())))
def test_measured_bubble_of_uniform_stages_is_the_dry_runs_fraction_and_the_formulas(
    options: dict[str, Any],
) -> None:
    job = Job.from_options(**options)
    exact = dry_run(compile_job(job)).bubble()
    assert analysis.bubble(synthetic(job), job, 1) == pytest.approx(float(exact), abs=1e-12)
    assert analysis.bubble_formula(job) == pytest.approx(float(exact), abs=1e-12)


def test_bubble_formulas_are_those_of_the_papers() -> None:
    def formula(**options: Any) -> Fraction:
        return Fraction(analysis.bubble_formula(Job.from_options(**options)) or 0).limit_denominator(1000)

    assert formula(pp=4, microbatches=8, schedule="gpipe") == Fraction(3, 11)
    assert formula(pp=4, microbatches=8, schedule="1f1b") == Fraction(3, 11)
    assert formula(pp=4, microbatches=8, chunks=2, schedule="interleaved") == Fraction(3, 19)
    assert formula(pp=4, microbatches=8, schedule="naive") == Fraction(3, 4)
    assert formula(pp=4, microbatches=8, schedule="zb-h1") == Fraction(3, 27)
    assert formula(pp=1, microbatches=8) == 0
    assert analysis.bubble_formula(Job.from_options(pp=4, microbatches=3, schedule="zb-h1")) is None


def test_waits_gaps_and_what_the_optimizer_step_waits_for_are_idle() -> None:
    # of 2 × 100 ns, rank 0 works 0-30 and 60-80, rank 1 works 20-70; the rest is idle
    ops = [
        compute(0, 0, 0, 30),
        op(rank=0, seq=1, kind="wait", start_ns=30, end_ns=60),
        compute(0, 2, 60, 100, "step"),
        op(rank=0, seq=3, parent=2, kind="collective", stream="world", op="all_reduce", peers=(0, 1),
           start_ns=65, end_ns=85),
        compute(1, 0, 20, 70),
    ]  # fmt: skip
    job = Job.from_options(pp=2)
    assert analysis.bubble(recording_of(ops), job, 0) == pytest.approx(1 - (30 + 20 + 50) / 200)


def test_collectives_inside_a_layer_are_busy_time() -> None:
    inside = op(rank=0, seq=1, parent=0, kind="collective", stream="tp", start_ns=2, end_ns=8)
    assert analysis.bubble(recording_of([compute(0, 0, 0, 10), inside]), Job(), 0) == 0


def test_a_wait_for_a_message_is_a_dependency_until_it_is_sent_and_transfer_from_then_on() -> None:
    wait = op(rank=1, seq=1, kind="wait", start_ns=10, end_ns=90, ref=0)
    recording = recording_of(
        [compute(0, 0, 0, 60), *message(0, posted=5, sent=70, there=90), wait, compute(1, 2, 90, 100)]
    )
    found = [idle for idle in analysis.idle_spans(analysis.step_ops(recording, 0)) if idle.rank == 1]
    assert [(i.start_ns, i.end_ns, i.cause) for i in found] == [
        (0, 10, "host"), (10, 70, "dependency"), (70, 90, "transfer"),
    ]  # fmt: skip
    assert found[1].why == "for forward block0 on rank 0, which makes the activations of micro-batch 3"


def test_a_wait_for_a_collective_blames_the_rank_that_joined_last() -> None:
    def reduce(rank: int, joined: int) -> list[Op]:
        return [
            op(rank=rank, seq=1, kind="reduce", stream="dp", op="all_reduce", unit="head", peers=(0, 1),
               start_ns=joined, end_ns=80),
            op(rank=rank, seq=2, kind="wait", start_ns=joined, end_ns=80, ref=1),
        ]  # fmt: skip

    recording = recording_of([compute(0, 0, 0, 10), *reduce(0, 10), compute(1, 0, 0, 60), *reduce(1, 60)])
    found = analysis.idle_spans(analysis.step_ops(recording, 0))
    assert [(i.rank, i.start_ns, i.end_ns, i.cause) for i in found] == [
        (0, 10, 60, "straggler"), (0, 60, 80, "transfer"), (1, 60, 80, "transfer"),
    ]  # fmt: skip
    assert found[0].why == "for rank 1 to join the all_reduce over the data axis of head"


def test_time_after_a_ranks_last_operation_has_nothing_left_to_do() -> None:
    recording = recording_of([compute(0, 0, 0, 40), compute(1, 0, 0, 100)])
    assert analysis.idle_by_cause(recording, 0)[0] == {
        "dependency": 0, "transfer": 0, "straggler": 0, "done": pytest.approx(60e-9), "host": 0,
    }  # fmt: skip


@pytest.mark.parametrize("options", SCHEDULES, ids=lambda o: "-".join(map(str, o.values())))
def test_idle_time_by_cause_adds_up_to_the_bubble(options: dict[str, Any]) -> None:
    job = Job.from_options(**options)
    recording = synthetic(job, LIFELIKE)
    start, end = analysis.step_window(recording, 1)
    idle = sum(sum(causes.values()) for causes in analysis.idle_by_cause(recording, 1).values())
    assert idle / ((end - start) / 1e9 * job.world_size) == pytest.approx(analysis.bubble(recording, job, 1))


def test_idle_spans_of_a_rank_never_overlap_each_other_nor_its_work() -> None:
    recording = synthetic(Job.from_options(dp=2, pp=2, zero=3), LIFELIKE)
    found = [i for i in analysis.idle_spans(analysis.step_ops(recording, 1)) if i.rank == 0]
    assert all(one.end_ns <= two.start_ns for one, two in pairwise(found))


# -- overlap


def test_overlap_is_the_part_of_communication_time_under_computation() -> None:
    # Holistic Trace Analysis gives 73.33 % for communication 500-800 against computation 320-720
    reduce = op(rank=0, seq=1, kind="reduce", stream="dp", start_ns=500, end_ns=800)
    assert analysis.overlap(recording_of([compute(0, 0, 320, 720), reduce]), 0) == {"dp": pytest.approx(220 / 300)}


def test_overlapping_communication_counts_once_and_ranks_add_up() -> None:
    ops = [
        compute(0, 0, 0, 50),
        op(rank=0, seq=1, kind="reduce", stream="dp", start_ns=0, end_ns=60),
        op(rank=0, seq=2, kind="reduce", stream="dp", start_ns=40, end_ns=100),
        compute(1, 0, 0, 100),
        op(rank=1, seq=1, kind="reduce", stream="dp", start_ns=0, end_ns=100),
    ]
    assert analysis.overlap(recording_of(ops), 0) == {"dp": pytest.approx((50 + 100) / 200)}


def test_a_collective_that_blocks_its_layer_hides_nothing() -> None:
    inside = op(rank=0, seq=1, parent=0, kind="collective", stream="tp", start_ns=20, end_ns=60)
    assert analysis.overlap(recording_of([compute(0, 0, 0, 100), inside]), 0) == {"tp": 0}


def test_a_message_counts_from_when_it_was_sent_and_asked_for() -> None:
    # posted at 5, sent at 40, there at 80; the receiver computes until 60
    ops = [*message(0, posted=5, sent=40, there=80), compute(1, 1, 6, 60)]
    assert analysis.overlap(recording_of(ops), 0) == {"pp": pytest.approx(20 / 40)}


# -- size


def many(copies: int) -> Recording:
    """Some 29,000 operations of 32 ranks, and the same again for as many more ranks."""
    job = Job.from_options(dp=4, tp=2, pp=4, layers=16, microbatches=32, batch=128)
    once = recording_of(Synthesis(job, Costs(layer=1000)).step(0, 0)[0])
    peers = once.ops["peers"].combine_chunks()

    def moved(k: int) -> pa.Table:
        table = once.ops.set_column(1, "rank", pc.add(once.ops["rank"], 32 * k))
        further = pa.ListArray.from_arrays(peers.offsets, pc.add(peers.values, pa.scalar(32 * k, pa.int32())))
        return table.set_column(table.column_names.index("peers"), "peers", further)

    return Recorded(pa.concat_tables(moved(k) for k in range(copies)), once.memory, once.metrics)


def test_four_times_the_operations_do_not_take_sixteen_times_as_long() -> None:
    """Growth, not speed: nothing here is quadratic."""

    def seconds(recording: Recording, ranks: int) -> float:
        job = Job.from_options(dp=ranks)
        start = time.process_time()
        for analyse in (analysis.overlap, analysis.idle_by_cause, analysis.communication_matrix):
            analyse(recording, 0)
        analysis.bubble(recording, job, 0)
        return time.process_time() - start

    large, small = many(4), many(1)
    assert large.ops.num_rows > 100_000
    assert min(seconds(large, 128) for _ in range(2)) < 10 * min(seconds(small, 32) for _ in range(2))
