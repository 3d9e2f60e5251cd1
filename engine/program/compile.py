"""Compiles a job to its program: the schedule, then one pass for each thing the plan asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.model.buckets import lane_buckets
from engine.model.units import TOKENS, needs, recomputes, stage_lane, stages, token_lanes
from engine.program.passes.gathers import gather_around_use
from engine.program.passes.layers import expand_units
from engine.program.passes.messages import add_messages
from engine.program.passes.recompute import recompute_before_backward
from engine.program.passes.reductions import bound_in_flight, finish, reduce_after_backward
from engine.program.program import Action, Lanes, Program

Expand = Callable[[Lanes, Sequence[Sequence[str]]], Lanes]


@lru_cache(maxsize=64)
def compile_job(job: Job) -> Program:
    """The program of one step of `job`, which must have passed `rules.check`."""
    plan = job.plan
    return compile_lanes(job, SCHEDULES[plan.schedule].order(plan.pp, plan.microbatches, plan.chunks))


def compile_lanes(job: Job, lanes: Lanes, expand: Expand = expand_units) -> Program:
    """The program of one step of `job` with the stage-level order in `lanes` in place of the schedule's.

    expand: puts units in the place of stages; the planner's leaves most of them together.
    """
    dealt = stages(job)
    home = [stage_lane(job.plan, s) for s in range(len(dealt))]
    lanes = expand(add_messages(lanes, home, early=job.plan.overlap), dealt)
    lanes = recompute_before_backward(lanes, partial(recomputes, job))
    return Program(tuple(tuple(_finish_lane(job, z, lane)) for z, lane in enumerate(lanes)))


def _finish_lane(job: Job, z: int, lane: Sequence[Action]) -> list[Action]:
    plan, zero = job.plan, job.effective_zero
    buckets, uses = lane_buckets(job, z), partial(needs, job.model)
    actions = list(lane)
    if zero == 3:
        actions = gather_around_use(actions, uses, plan.prefetch if plan.overlap else 0, plan.keep_gathered)
    actions = reduce_after_backward(actions, buckets, uses, dp=plan.dp, zero=zero, over_tensor=job.scatters_sequence)
    if not plan.overlap:
        actions = bound_in_flight(actions, most=0)
    elif zero >= 2:
        actions = bound_in_flight(actions, most=1)
    tie = TOKENS if z in token_lanes(job) else None
    return actions + finish(buckets, dp=plan.dp, zero=zero, tie=tie)
