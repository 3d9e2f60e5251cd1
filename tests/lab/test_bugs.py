"""The bug zoo on real processes: every fault is caught, and shows first where it is said to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import lab
from engine.execution.reference import kept_losses
from engine.job.bugs import BUGS, Bug
from engine.job.job import Job
from engine.program.compile import compile_job, program_of
from lab.facade import Run
from lab.running.execution import reference_file

SMALL = {"layers": 2, "hidden": 64, "heads": 4, "seq": 16, "batch": 8, "steps": 3}
SAME = 1e-5
"""Relative; a sum in another order is off by some 1e-7."""


@dataclass(frozen=True)
class Seen:
    """Losses and gradient norms by step, of a run and of one process that does the same without the fault."""

    run: Run
    losses: list[float]
    norms: list[float]
    right_losses: list[float]
    right_norms: list[float]

    def loss(self, step: int) -> float:
        return self.losses[step] / self.right_losses[step]

    def norm(self, step: int) -> float:
        return self.norms[step] / self.right_norms[step]

    @property
    def prints(self) -> int:
        """How many different sets of weights the ranks hold."""
        return len(set(self.run.info.fingerprints))

    @property
    def on_data_axis(self) -> list[tuple[int, int | None]]:
        """Bytes sent and foretold."""
        rows = [row for row in self.run.communication_table if row["axis"] == "dp"]
        return [(row["logical_bytes"], row["predicted_bytes"]) for row in rows]


def seen(run: Run) -> Seen:
    alone = kept_losses(reference_file(run.job, run.store))
    assert alone is not None
    ours = [[step[name] for step in run.steps] for name in ("loss", "grad_norm")]
    return Seen(run, ours[0], ours[1], alone["losses"], alone["grad_norms"])


def same(ratio: float) -> bool:
    return abs(ratio - 1) < SAME


def first_step_is_right(found: Seen) -> bool:
    return same(found.loss(0)) and same(found.norm(0))


FIRST: dict[str, Callable[[Seen], bool]] = {
    "norm-gradients-not-summed": lambda s: same(s.loss(0)) and s.norm(0) < 0.99,
    "tied-copies-not-summed": lambda s: same(s.loss(0)) and not same(s.norm(0)) and not same(s.loss(2)),
    "loss-times-m": lambda s: all(same(s.loss(i) / 4) and same(s.norm(i) / 4) for i in range(3)),
    "divided-twice": lambda s: same(s.loss(0)) and same(2 * s.norm(0)),
    "clip-by-own-norm": lambda s: first_step_is_right(s) and not same(s.norm(1)),
    "no-data-reduction": lambda s: same(s.loss(0)) and 0.4 < s.norm(0) < 0.8 and s.prints == 2,
    "stale-gather": lambda s: first_step_is_right(s) and s.loss(1) > 1 + SAME,
    "bucket-not-gathered": lambda s: first_step_is_right(s) and not same(s.loss(1)) and s.prints == 2,
    "wrong-tag": lambda s: not same(s.loss(0)),
    "input-gradient-not-summed": lambda s: same(s.loss(0)) and s.norm(0) < 0.99,
    "row-bias-t-times": lambda s: first_step_is_right(s) and not same(s.loss(1)),
    "same-data": lambda s: not same(s.loss(0)) and s.prints == 1,
    "gradients-not-zeroed": lambda s: first_step_is_right(s) and s.norm(1) > 1.2,
    "adam-counts-microbatches": lambda s: first_step_is_right(s) and s.loss(1) > 1 + SAME,
    "reduced-every-microbatch": lambda s: all(sent == 4 * foretold for sent, foretold in s.on_data_axis if foretold),
}
"""By fault: what section 13 of the design, which measured each in a copy of the engine, says is seen first."""


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One store, so that the one process is run once for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("zoo") / "runs"))
        yield


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_fault_is_caught_and_shows_first_where_it_is_said_to(bug: Bug) -> None:
    found = seen(lab.run(bug=bug.name, **bug.options | SMALL))
    assert found.run.summary["parity"]["passed"] is bool(bug.seen_in)
    assert FIRST[bug.name](found), found
    if bug.seen_in == "bytes":
        assert any(sent != foretold for sent, foretold in found.on_data_axis)
    falls = found.losses[2] < found.losses[0]
    assert falls, "a curve that rises would give the fault away"
    assert found.run.replay("toy-2x4").summary["step_seconds"] > 0


def test_a_fault_in_the_program_leaves_that_of_the_same_job_without_it_alone() -> None:
    for bug in BUGS:
        job = Job.from_options(bug=bug.name, **bug.options)
        healthy = Job.from_options(**bug.options)
        assert program_of(healthy) is compile_job(healthy)
        assert (program_of(job) != compile_job(healthy)) is bool(bug.in_program)
        assert job.one_process() == healthy.one_process()


@pytest.mark.parametrize("options", [{"zero": 1}, {"tp": 2, "sequence_parallel": True}, {"pp": 2, "tied": True}])
def test_reducing_after_every_microbatch_is_right_under_every_plan(options: dict[str, object]) -> None:
    run = lab.run(bug="reduced-every-microbatch", dp=2, **options | SMALL)
    assert run.summary["parity"]["passed"]
