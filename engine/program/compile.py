"""Compiles a job to its program: the schedule, then one pass for each thing the plan asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from engine.job.axes import dividing, sharding_axis
from engine.job.bugs import BUGS
from engine.job.job import Job
from engine.job.registry import Registry
from engine.job.schedules import SCHEDULES
from engine.model.buckets import buckets_of_pp_rank
from engine.model.family import loaded
from engine.model.units import TOKENS, needs, pp_rank_of_stage, recomputes, stages, tied_pp_ranks
from engine.program.passes.gathers import gather_around_use
from engine.program.passes.layers import expand_units
from engine.program.passes.messages import add_messages
from engine.program.passes.recompute import recompute_before_backward
from engine.program.passes.reductions import bound_in_flight, finish, reduce_after_backward
from engine.program.program import Action, Lanes, Program

Expand = Callable[[Lanes, Sequence[Sequence[str]]], Lanes]


@dataclass(frozen=True)
class LanePass:
    """A pass over one pipeline rank's actions: (job, pipeline rank, its actions) → the actions with more of them."""

    name: str
    over: Callable[[Job, int, Sequence[Action]], list[Action]]


def program_of(job: Job) -> Program:
    """What the ranks of `job` execute: its compiled program, with the fault in it that it is to have."""
    return with_fault(job, compile_job(job))


def with_fault(job: Job, program: Program) -> Program:
    """The checked program of `job`, or one with a fault, if the job is to have one and that is in programs."""
    where = BUGS[job.fault.bug].in_program if job.fault.bug else ""
    faulty: Program = loaded(where)(job, program) if where else program
    return faulty


def compile_job(job: Job) -> Program:
    """The program of one step of `job`, which must have passed `rules.check`; a fault is not in it."""
    return _compiled(job, PASSES.names)


@lru_cache(maxsize=64)
def _compiled(job: Job, passes: tuple[str, ...]) -> Program:
    """passes: those that there are, so that a newcomer's programs are not mistaken for those before it."""
    plan = job.plan
    return compile_lanes(job, SCHEDULES[plan.schedule].order(plan.pp, plan.microbatches, plan.chunks))


def compile_lanes(job: Job, lanes: Lanes, expand: Expand = expand_units) -> Program:
    """The program of one step of `job` with the stage-level order in `lanes` in place of the schedule's.

    expand: puts units in the place of stages; the planner's leaves most of them together.
    """
    dealt = stages(job)
    home = [pp_rank_of_stage(job.plan, s) for s in range(len(dealt))]
    lanes = expand(add_messages(lanes, home, early=job.plan.overlap), dealt)
    lanes = recompute_before_backward(lanes, partial(recomputes, job))
    return Program(tuple(tuple(_with_passes(job, pp_rank, lane)) for pp_rank, lane in enumerate(lanes)))


def _with_passes(job: Job, pp_rank: int, lane: Sequence[Action]) -> Sequence[Action]:
    for one in PASSES:
        lane = one.over(job, pp_rank, lane)
    return lane


def _gathered(job: Job, pp_rank: int, lane: Sequence[Action]) -> list[Action]:
    if job.effective_zero < 3:
        return list(lane)
    plan = job.plan
    uses = partial(needs, job.model)
    buckets, prefetch = buckets_of_pp_rank(job, pp_rank), plan.prefetch if plan.overlap else 0
    return gather_around_use(lane, buckets, uses, prefetch, plan.keep_gathered)


def _reduced(job: Job, pp_rank: int, lane: Sequence[Action]) -> list[Action]:
    buckets = buckets_of_pp_rank(job, pp_rank)
    return reduce_after_backward(lane, buckets, partial(needs, job.model), zero=job.effective_zero)


def _bounded(job: Job, pp_rank: int, lane: Sequence[Action]) -> list[Action]:
    if not job.plan.overlap:
        return bound_in_flight(lane, dividing("batch"), most=0)
    return bound_in_flight(lane, [sharding_axis()], most=1) if job.effective_zero >= 2 else list(lane)


def _finished(job: Job, pp_rank: int, lane: Sequence[Action]) -> list[Action]:
    plan, tie = job.plan, TOKENS if pp_rank in tied_pp_ranks(job) else None
    buckets = buckets_of_pp_rank(job, pp_rank)
    return [*lane, *finish(buckets, zero=job.effective_zero, tie=tie, overlap=plan.overlap)]


PASSES: Registry[LanePass] = Registry(
    "pass",
    LanePass("gathers", _gathered),
    LanePass("reductions", _reduced),
    LanePass("reductions in flight", _bounded),
    LanePass("end of the step", _finished),
)
"""In the order in which they are applied."""
