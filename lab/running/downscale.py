"""A plan of a large cluster, made small enough to be run here: the same kind of plan with fewer ranks and layers."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.job.axes import further_axes
from engine.job.job import Job, Model, Plan, Training
from engine.job.schedules import SCHEDULES
from lab.wording import degrees_words

MOST_RANKS = 16
_LAYERS_A_STAGE = 2


def scaled_down(job: Job, most_ranks: int = MOST_RANKS) -> Job:
    """`job` with degrees cut in half until at most `most_ranks` ranks remain, and a small model that fits them.

    Kept: which axes are used, schedule, chunks (at most 2), ZeRO stage, sequence parallelism, recomputation. At least
    two ranks stay on each axis that has several, as long as there is room. The largest degree is cut first.
    """
    degrees = {axis: _power_of_two(degree) for axis, degree in job.plan.degrees.items()}
    while prod(degrees.values()) > most_ranks:
        axis = max(degrees, key=lambda name: (degrees[name], name == "dp"))
        degrees[axis] //= 2
    pp, dp = degrees["pp"], degrees["dp"]
    schedule = job.plan.schedule if pp > 1 else Plan.schedule
    plan = Plan(
        dp=dp,
        tp=degrees["tp"],
        pp=pp,
        axes=further_axes(degrees),
        zero=job.plan.zero,
        schedule=schedule,
        chunks=SCHEDULES[schedule].fitting_chunks(1),
        microbatches=max(4, 2 * pp),
        sequence_parallel=job.plan.sequence_parallel and degrees["tp"] > 1,
        recompute=job.plan.recompute,
        overlap=job.plan.overlap,
    )
    heads = max(4, degrees["tp"])
    model = Model(
        family=job.model.family,
        layers=max(4, _LAYERS_A_STAGE * pp * plan.chunks),
        heads=heads,
        hidden=16 * heads,
        tied=job.model.tied,
    )
    return replace(job, model=model, plan=plan, training=Training(batch=plan.replicas * plan.microbatches))


def what_changed(large: Job, small: Job) -> str:
    """Both sizes in words."""

    def words(job: Job) -> str:
        plan = job.plan
        degrees = degrees_words(plan.degrees)
        return f"{degrees}, {job.model.layers} layers of {job.model.hidden}"

    return f"{words(large)} → {words(small)}, {small.world_size} processes on this machine"


def _power_of_two(degree: int) -> int:
    """The largest one not above it."""
    return 1 << (degree.bit_length() - 1)
