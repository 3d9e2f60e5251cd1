"""Split backwards on real processes: the same training, to the bit where the sums have one order, and exact books."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.prediction.formulas import predicted_communication
from engine.program.compile import compile_job
from engine.program.kinds import KINDS, Kind
from engine.program.program import Action, Program
from tests.engine.running import Trained, assert_ledger_as_predicted, train

TINY = {"layers": 4, "hidden": 32, "seq": 16, "batch": 16, "steps": 2, "vocab": 257}
PLANS: list[dict[str, Any]] = [
    {"pp": 2, "schedule": "zb-h1", "tied": True},
    {"pp": 3, "schedule": "zb-h1", "dp": 2, "zero": 1, "microbatches": 2},
    {"pp": 2, "schedule": "zb-h1", "dp": 2, "zero": 3, "tp": 2, "sequence_parallel": True, "tied": True},
    {"pp": 2, "schedule": "zb-h2", "tp": 2, "overlap": False},
    {"pp": 4, "schedule": "zb-h2", "dp": 2, "zero": 2, "microbatches": 8},
    {"pp": 2, "schedule": "zb-v", "chunks": 2, "dp": 2, "zero": 0, "tied": True},
    {"pp": 2, "schedule": "zb-v", "chunks": 2, "dp": 2, "zero": 3, "tp": 2, "sequence_parallel": True, "prefetch": 2},
    {"pp": 2, "schedule": "zb-v", "chunks": 2, "dp": 2, "zero": 2, "tied": True, "microbatches": 1},
]


def label(plan: dict[str, Any]) -> str:
    return "-".join(f"{k}{v}" for k, v in plan.items())


@lru_cache
def _run(index: int) -> Trained:
    return train(**TINY | PLANS[index])


@pytest.fixture(params=range(len(PLANS)), ids=[label(plan) for plan in PLANS], scope="module")
def run(request: pytest.FixtureRequest) -> Trained:
    return _run(request.param)


def test_it_trains_what_one_process_trains(run: Trained) -> None:
    run.assert_parity()


@pytest.mark.parametrize("index", [i for i, plan in enumerate(PLANS) if plan["schedule"] != "zb-v"])
def test_delayed_weight_parts_change_no_bit(index: int) -> None:
    # under ZB-V stages sit elsewhere, so that the gradient norm adds up in another order
    run = _run(index)
    plain = train(parity=False, **run.job.options() | {"schedule": "1f1b"})
    assert (run.losses, run.norms) == (plain.losses, plain.norms)


def test_the_ledgers_peaks_equal_the_prediction_on_every_rank(run: Trained) -> None:
    assert_ledger_as_predicted(run)


def test_logical_bytes_equal_the_closed_form_for_every_axis_and_operation(run: Trained) -> None:
    for pp_rank in range(run.job.plan.pp):
        rank, total = mesh_of(run.job).rank(pp=pp_rank), Counter[tuple[str, str]]()
        for row in run.ops.to_pylist():
            if (row["rank"], row["step"]) == (rank, 1) and row["op"]:
                total[row["group"], row["kind"] if row["op"] == "message" else row["op"]] += row["logical_bytes"]
        assert dict(total) == predicted_communication(run.job, pp_rank)


def flops(run: Trained, *kinds: str) -> int:
    return sum(r["flops"] for r in run.ops.to_pylist() if r["step"] == 1 and r["kind"] in kinds)


def test_the_two_parts_cost_the_flops_of_the_whole(run: Trained) -> None:
    inputs, weights = flops(run, "backward", "backward_input"), flops(run, "backward_weight")
    tokens, h, layers = run.job.training.batch * run.job.model.seq, run.job.model.hidden, run.job.model.layers
    vocab = run.job.model.vocab + run.job.model.vocab % run.job.plan.tp
    products = 12 * layers * h * h + h * vocab  # weights of all linears
    attention = layers * 4 * tokens * run.job.model.seq * h
    assert weights == 2 * tokens * products
    assert inputs == weights + 2 * attention
    assert flops(run, "forward") == weights + attention


def test_the_weight_part_gathers_what_sequence_parallelism_scattered() -> None:
    rows = _run(2).ops.to_pylist()
    blocks = {r["seq"] for r in rows if (r["rank"], r["step"], r["kind"]) == (0, 1, "backward_weight")}
    inside = [r["op"] for r in rows if (r["rank"], r["step"]) == (0, 1) and r["parent"] in blocks]
    assert len(blocks) == 2 * 4 and inside == ["all_gather"] * 2 * len(blocks)


def test_whole_and_split_backwards_stand_side_by_side() -> None:
    options = TINY | {"pp": 2, "schedule": "zb-h1", "dp": 2, "zero": 1}

    def merged(lane: tuple[Action, ...]) -> tuple[Action, ...]:
        """Only micro-batch 1 keeps its split."""
        whole = [a for a in lane if a.microbatch in (1, None) or a.kind is not Kind.BACKWARD_WEIGHT]
        return tuple(
            replace(a, kind=Kind.BACKWARD) if a.microbatch != 1 and a.kind is Kind.BACKWARD_INPUT else a for a in whole
        )

    lanes = tuple(map(merged, compile_job(Job.from_options(**options)).lanes))
    assert {a.kind for lane in lanes for a in lane} >= {
        kind for kind in KINDS if kind.adds_gradient or kind.makes_gradient
    }
    train(program=Program(lanes), **options).assert_parity()
