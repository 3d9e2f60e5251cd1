"""How long a step takes and how much memory it needs, for the price of its first and last micro-batches.

A pipeline with many micro-batches repeats itself once it is full. So a step with fewer is replayed, and what is left
out is added (see `repeating`). The result is that of the whole replay, to the nanosecond; where nothing repeats, and
where it would save little, the whole step is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from engine.cluster.cluster import Cluster
from engine.job.job import Job, Plan
from engine.job.nearest import divisors
from engine.job.schedules import SCHEDULES
from engine.prediction.equivalent_ranks import representatives
from engine.prediction.peak_memory import predicted_memory
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.repeating import Repeating
from engine.prediction.replay.op_seconds import costs_on
from engine.prediction.replay.replay import check_countable
from engine.prediction.replay.steps import step_rows
from engine.program.compile import compile_job

MORE = 3
"""Micro-batches of the first try beyond those that fill and empty the pipeline and three rounds between."""
_PS_IN_NS = 1000


@dataclass(frozen=True)
class Foretold:
    """What a step takes. peak_bytes: of the rank that holds most. replayed: how many micro-batches were."""

    seconds: float
    peak_bytes: int
    replayed: int


def foretell(job: Job, cluster: Cluster, cache_dir: Path | None = None) -> Foretold:
    """The step time of `engine.prediction.simulate` and the highest total of `predicted_memory`, without their tables.

    cache_dir: see `engine.prediction.op_templates.template_cache`. Raises `ValueError` if the cluster is too small, or
    if the step is too long to be counted.
    """
    like, most = representatives(job, cluster), job.plan.microbatches
    for few in _tries(job):
        tried = with_microbatches(job, few)
        known = _replayed(tried, cluster, like, cache_dir)
        for lag in divisors(job.plan.pp):
            picoseconds = known.with_more(lag, (most - few) // lag)
            if picoseconds is not None:
                return _foretold(tried, picoseconds)
    return _foretold(job, _replayed(job, cluster, like, cache_dir).picoseconds)


def _foretold(job: Job, picoseconds: int) -> Foretold:
    peak = max(row["total_peak"] for row in predicted_memory(job))
    return Foretold(picoseconds // _PS_IN_NS / 1e9, peak, job.plan.microbatches)


def _tries(job: Job) -> Iterator[int]:
    """Numbers of micro-batches that may be enough, all of which leave out whole rounds of the pipeline.

    None where the ranks would hold less than with all of them: then nothing repeats.
    """
    plan = job.plan
    most, held = plan.microbatches, _held(plan, plan.microbatches)
    round_ = plan.pp if any(SCHEDULES[plan.schedule].legal(replace(plan, microbatches=most + 1))) else 1
    few = 2 * -(-max(held, default=most) // plan.chunks) + 3 * round_ + MORE
    while few <= most // 2:
        rounded = few + (most - few) % plan.pp
        if held == _held(plan, rounded):
            yield rounded
        few *= 2


def _held(plan: Plan, microbatches: int) -> list[int]:
    """The most activations of a chunk that each rank of the pipeline holds; none if the schedule does not say it."""
    held = SCHEDULES[plan.schedule].in_flight
    return [held(plan.pp, microbatches, plan.chunks, rank) for rank in range(plan.pp)] if held else []


def with_microbatches(job: Job, count: int) -> Job:
    """The same plan with `count` micro-batches of the same size."""
    batch = job.microbatch_size * job.plan.replicas * count
    return replace(job, plan=replace(job.plan, microbatches=count), training=replace(job.training, batch=batch))


def _replayed(job: Job, cluster: Cluster, like: tuple[int, ...], cache_dir: Path | None) -> Repeating:
    ranks = sorted(set(like))
    rehearsed = rehearse(job, compile_job(job), ranks, cluster.backend, cache_dir, with_memory=False)
    rows = step_rows(rehearsed, 0, dict(enumerate(like)))
    seconds = costs_on(cluster, job.world_size, job.training.precision)(rows)
    check_countable(seconds)
    return Repeating(rows, seconds)
