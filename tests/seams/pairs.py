"""A schedule nobody else has: micro-batches two by two, on stages that lie from the last rank to the first."""

from __future__ import annotations

from collections.abc import Iterator

from engine.job.schedules import SCHEDULES, PipelinePlan, Schedule
from engine.program.program import Lanes, lanes_of
from engine.program.schedules.one_f_one_b import backward, forward


def pairs(p: int, m: int, v: int) -> Lanes:
    """F F B B, as often as there are two micro-batches."""
    return lanes_of(
        [do(p - 1 - z, k) for first in range(0, m, 2) for do in (forward, backward) for k in (first, first + 1)]
        for z in range(p)
    )


def _even(plan: PipelinePlan) -> Iterator[str]:
    if plan.microbatches % 2:
        yield f"schedule=pairs takes micro-batches two by two and microbatches={plan.microbatches}: use an even number."


SCHEDULES.add(Schedule(name="pairs", label="Pairs", order=pairs, placement=lambda p, stage: p - 1 - stage, legal=_even))
