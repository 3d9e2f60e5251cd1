"""The test of truth: what is rehearsed without processes is what real processes do, row by row and span by span."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from engine.cluster.cluster import load_cluster
from engine.job.job import Job
from engine.job.rules import check
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.replay.replay import replay
from engine.prediction.simulate import simulate
from engine.program.handwritten import schedule_program
from engine.recording.tables import Recorded, Recording
from lab.analysis import memory_peaks
from tests.engine.running import Trained, train

TINY: dict[str, Any] = {"layers": 4, "hidden": 32, "heads": 4, "seq": 16, "batch": 16, "microbatches": 4, "steps": 2}
TIMES = ("start_ns", "end_ns", "cpu_ns", "step")

PLANS: list[dict[str, Any]] = [
    {},
    {"dp": 2},
    {"dp": 4, "zero": 1, "microbatches": 2},
    {"dp": 2, "zero": 2, "pp": 2, "schedule": "gpipe"},
    {"dp": 2, "zero": 3, "tp": 2, "sequence_parallel": True},
    {"dp": 2, "zero": 3, "pp": 2, "keep_gathered": True, "recompute": "full"},
    {"tp": 4, "vocab": 257, "recompute": "selective"},
    {"tp": 2, "pp": 2, "sequence_parallel": True, "tied": True, "recompute": "full"},
    {"pp": 4, "schedule": "naive", "overlap": False},
    {"pp": 2, "schedule": "interleaved", "chunks": 2, "dp": 2, "zero": 1, "tied": True},
    {"pp": 4, "schedule": "zb-h1", "recompute": "full"},
    {"pp": 2, "schedule": "zb-h2", "dp": 2, "zero": 3, "tp": 2, "sequence_parallel": True},
    {"pp": 2, "schedule": "zb-v", "chunks": 2, "dp": 2, "zero": 2, "tied": True, "recompute": "selective"},
    {"dp": 2, "tp": 2, "pp": 2, "zero": 1, "bucket_kb": 1},
    {"dp": 2, "tp": 2, "pp": 2, "zero": 2, "sequence_parallel": True, "order": "pp-dp-tp"},
    {"dp": 2, "tp": 2, "pp": 2, "zero": 3, "prefetch": 2, "clip": 0.0},
]


@pytest.mark.parametrize("which", range(len(PLANS)), ids=lambda i: "-".join(map(str, PLANS[i].values())) or "alone")
def test_a_rehearsal_and_a_real_run_record_the_same_operations_and_replay_alike(which: int) -> None:
    run = train(parity=False, **TINY | PLANS[which])
    foretold = rehearse(run.job)
    measured = Recorded(run.ops.filter(pc.equal(run.ops["step"], 1)), run.memory, foretold.metrics)
    for name in foretold.ops.column_names:
        if name not in TIMES:
            expected, found = (_in_order(r.ops, name) for r in (measured, foretold))
            assert found == expected, name
    _same_spans(measured, foretold, run.job)
    _same_peaks(run, foretold)


def _in_order(ops: Any, name: str) -> list[Any]:
    values: list[Any] = ops.sort_by([("rank", "ascending"), ("seq", "ascending")])[name].to_pylist()
    return values


def _same_spans(measured: Recording, foretold: Recording, job: Job) -> None:
    cluster = load_cluster("toy-2x4")
    real, rehearsed = replay(measured, job, cluster, step=1), replay(foretold, job, cluster)
    for name in ("start_ns", "end_ns"):
        assert _in_order(rehearsed.ops, name) == _in_order(real.ops, name)


def _same_peaks(run: Trained, foretold: Recording) -> None:
    ledger = memory_peaks(Recorded(run.ops, run.memory, foretold.metrics))
    assert memory_peaks(foretold) == ledger
    replayed = replay(foretold, run.job, load_cluster("toy-2x4"))
    assert memory_peaks(replayed) == ledger


@pytest.mark.parametrize("seed", range(4))
def test_one_rank_of_each_kind_stands_for_all_the_others(seed: int) -> None:
    draw = random.Random(seed)
    degrees = draw.choice([(2, 2, 2), (4, 1, 2), (1, 4, 2), (2, 1, 4)])
    job = Job.from_options(
        **TINY | {"dp": degrees[0], "tp": degrees[1], "pp": degrees[2], "zero": draw.randint(0, 3)},
        tied=draw.random() < 0.5, sequence_parallel=draw.random() < 0.5,
    )  # fmt: skip
    check(job)
    cluster = load_cluster("toy-2x4")
    everyone, few = replay(rehearse(job), job, cluster), simulate(job, cluster)
    ends = {r: np.array(e) for r, e in _ends(everyone).items()}
    for rank, like in few.stands_for.items():
        assert (ends[rank] == _ends(few)[like]).all()


def _ends(recording: Recording) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    ordered = recording.ops.sort_by([("rank", "ascending"), ("seq", "ascending")])
    for rank, end in zip(ordered["rank"].to_pylist(), ordered["end_ns"].to_pylist(), strict=True):
        found.setdefault(rank, []).append(end)
    return found


def test_a_rehearsed_steps_memory_changes_among_its_operations_and_not_at_its_end() -> None:
    out = simulate(Job.from_options(dp=2, zero=1), load_cluster("h100-dgx"))
    first = next(row for row in out.op_rows() if row.name.startswith("forward embedding mb0"))
    kept = next(row for row in out.memory.to_pylist() if row["category"] == "activations")
    assert kept["time_ns"] == first.end_ns < max(row.end_ns for row in out.op_rows())


def test_an_order_that_mixes_whole_and_split_backwards_is_rehearsed_as_it_runs() -> None:
    job = Job.from_options(**TINY | {"pp": 2, "layers": 2})
    program = schedule_program(job, "F0 F1 F2 F3 B0 I1 W1 B2 I3 W3\nF0 I0 F1 W0 B1 F2 I2 W2 F3 B3")
    run = train(parity=False, program=program, **TINY | {"pp": 2, "layers": 2})
    foretold = rehearse(job, program)
    measured = run.ops.filter(pc.equal(run.ops["step"], 1))
    for name in ("kind", "unit", "microbatch", "flops", "logical_bytes"):
        assert _in_order(foretold.ops, name) == _in_order(measured, name), name


def test_split_backwards_add_to_wider_gradients_too() -> None:
    # Megatron's fp32 main gradients: what the weight part makes goes there, as a whole backward's gradients do
    options = TINY | {"pp": 2, "precision": "mixed18"}
    flops = [
        sum(rehearse(Job.from_options(**options, schedule=schedule)).ops["flops"].to_pylist())
        for schedule in ("1f1b", "zb-h1")
    ]
    assert flops[0] == flops[1]
