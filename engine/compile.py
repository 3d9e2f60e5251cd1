"""Compiles a job to its program: the schedule, then one pass for each thing the plan asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from engine.buckets import lane_buckets
from engine.job import Job
from engine.passes.gathers import gather_around_use
from engine.passes.layers import expand_units
from engine.passes.messages import add_messages
from engine.passes.recompute import recompute_before_backward
from engine.passes.reductions import bound_in_flight, finish, reduce_after_backward
from engine.passes.schedules import SCHEDULE_FUNCTIONS
from engine.program import Action, Program
from engine.units import TOKENS, needs, recomputes, shares_tokens, stages


@lru_cache(maxsize=64)
def compile_job(job: Job) -> Program:
    """The program of one step of `job`, which must have passed `rules.check`."""
    plan, dealt = job.plan, stages(job)
    lanes = SCHEDULE_FUNCTIONS[plan.schedule](plan.pp, plan.microbatches, plan.chunks)
    lanes = add_messages(lanes, len(dealt), early=plan.overlap)
    lanes = expand_units(lanes, dealt)
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
    tie = TOKENS if shares_tokens(job) and z in (0, plan.pp - 1) else None
    return actions + finish(buckets, dp=plan.dp, zero=zero, tie=tie)
