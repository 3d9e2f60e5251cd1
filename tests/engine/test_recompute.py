"""Activation recomputation: the same numbers, less memory, more FLOPs, and all of it as foretold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engine.job.job import Job
from engine.prediction.formulas import predicted_communication
from engine.program.checks.check import ProgramError, check_program
from engine.program.compile import compile_job
from engine.program.kinds import Kind
from engine.program.program import Program
from tests.engine.running import Trained, assert_ledger_as_predicted, train

TINY: dict[str, Any] = {"layers": 4, "hidden": 32, "heads": 4, "seq": 16, "batch": 8, "microbatches": 4, "steps": 2}
PLANS: list[dict[str, Any]] = [
    {"recompute": "full"},
    {"recompute": "selective", "tp": 2},
    {"recompute": "full", "dp": 2, "zero": 3, "tp": 2},
    {"recompute": "full", "pp": 2, "tp": 2, "sequence_parallel": True},
    {"recompute": "selective", "pp": 2, "schedule": "zb-v", "chunks": 2},
    {"recompute": "full", "pp": 2, "schedule": "zb-h1", "dp": 2, "zero": 2},
    {"recompute": "full", "dp": 2, "zero": 3, "keep_gathered": True, "pp": 2, "schedule": "interleaved", "chunks": 2},
]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(map(str, plan.values())))
def test_recomputed_runs_equal_one_process_and_hold_and_send_what_was_foretold(plan: dict[str, Any]) -> None:
    run = train(**TINY | plan)
    run.assert_parity()
    assert_ledger_as_predicted(run)
    assert _sent_by_first_rank(run) == predicted_communication(run.job)


def _sent_by_first_rank(run: Trained) -> dict[tuple[str, str], int]:
    sent: Counter[tuple[str, str]] = Counter()
    for row in run.ops.to_pylist():
        if (row["rank"], row["step"]) == (0, 1) and row["stream"] != "compute":
            message = row["op"] == "message"
            sent["pp" if message else row["stream"], row["kind"] if message else row["op"]] += row["logical_bytes"]
    return dict(sorted(sent.items()))


@pytest.mark.parametrize("how", ["selective", "full"])
def test_recomputation_changes_no_bit_and_costs_the_flops_of_what_it_repeats(how: str) -> None:
    kept, again = (train(parity=False, **TINY, recompute=which) for which in ("none", how))
    assert again.losses == kept.losses and again.norms == kept.norms
    n, s, h, layers, m = 2 * 16, 16, 32, 4, 4
    repeated = 4 * n * s * h if how == "selective" else 24 * n * h * h + 4 * n * s * h
    flops = [sum(r["flops"] for r in run.ops.to_pylist() if r["step"] == 1) for run in (kept, again)]
    assert flops[1] - flops[0] == layers * m * repeated


def test_full_recomputation_keeps_one_input_for_each_block() -> None:
    run = train(parity=False, **TINY, recompute="full")
    n, h = 2 * 16, 32
    none = train(parity=False, **TINY)
    peaks = [max(r["bytes"] for r in one.memory.to_pylist() if r["category"] == "activations") for one in (run, none)]
    block = 2 * (2 * n * h + 2 * n) * 4 + (12 * n * h + 4 * 16 * n) * 4
    # at the peak of 1F1B on one rank all blocks' inputs are kept and the head works, or one block is whole again
    head = (2 * n * h + 2 * n) * 4 + n * 256 * 4 + n * 9
    assert peaks == [4 * n * h * 4 + max(head, block - n * h * 4), 4 * block + head]


def test_a_program_that_forgets_to_recompute_is_refused_in_words() -> None:
    job = Job.from_options(**TINY, recompute="full")
    lane = compile_job(job).lanes[0]
    forgotten = Program((tuple(a for a in lane if (a.kind, a.unit, a.microbatch) != (Kind.RECOMPUTE, "block2", 1)),))
    with pytest.raises(ProgramError, match=r"backward block2 mb1 .*it needs recompute block2 mb1 stage0 first"):
        check_program(forgotten, job)


def test_a_program_that_recomputes_what_was_kept_is_refused_in_words() -> None:
    job = Job.from_options(**TINY, recompute="full")
    with pytest.raises(ProgramError, match="nothing of block3 was dropped: only recompute=full drops"):
        check_program(compile_job(job), Job.from_options(**TINY))
