"""How long a step takes and how much memory it needs, for the price of its first and last micro-batches.

A pipeline with many micro-batches repeats itself once it is full. So a step with fewer is replayed, `repeating` finds
out what comes again there and how much later, and what is left out is added. The result is that of the whole replay,
to the nanosecond; where nothing repeats, and where it would save little, the whole step is replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from engine.cluster.cluster import Cluster
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.prediction.equivalent_ranks import representatives
from engine.prediction.peak_memory import predicted_memory
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.repeating import Repeat, Repeats
from engine.prediction.replay.op_seconds import costs_on
from engine.prediction.replay.replay import times_of
from engine.prediction.replay.steps import step_rows
from engine.prediction.replay.timing import graph
from engine.program.compile import compile_job

FILLINGS, MORE = 2, 6
"""The first try has `FILLINGS` micro-batches for each pipeline rank and `MORE`; each next try twice as many."""
_PS_IN_NS = 1000


@dataclass(frozen=True)
class Foretold:
    """What a step takes. peak_bytes: of the rank that holds most. replayed: how many micro-batches were."""

    seconds: float
    peak_bytes: int
    replayed: int


def foretell(job: Job, cluster: Cluster, cache_dir: Path | None = None) -> Foretold:
    """The step time of `engine.prediction.simulate` and the highest total of `predicted_memory`, without their tables.

    cache_dir: see `engine.prediction.op_templates.template_cache`. Raises `ValueError` if the cluster is too small.
    """
    like = representatives(job, cluster)
    for few in _tries(job):
        tried = _replayed(_with_microbatches(job, few), cluster, like, cache_dir)
        repeat = tried.repeat(few)
        if repeat is None:
            continue
        left = (job.plan.microbatches - few) % repeat.lag
        if left:  # what is left out has to be whole rounds
            few += left
            tried = _replayed(_with_microbatches(job, few), cluster, like, cache_dir)
            repeat = tried.repeats.every(repeat.lag)
        if repeat is not None:
            return tried.foretold(job, few, repeat)
    return _replayed(job, cluster, like, cache_dir).foretold(job, job.plan.microbatches, Repeat(1, 0))


def _tries(job: Job) -> Iterator[int]:
    """Numbers of micro-batches that may be enough, all of which leave out whole rounds of the pipeline.

    None where the ranks would hold less than with all of them: then nothing repeats.
    """
    plan = job.plan
    schedule, most = SCHEDULES[plan.schedule], plan.microbatches
    if schedule.in_flight is None:
        return
    held = [schedule.in_flight(plan.pp, most, plan.chunks, rank) for rank in range(plan.pp)]
    few = FILLINGS * plan.pp + MORE
    while few <= most // 2:
        rounded = few + (most - few) % plan.pp
        if held == [schedule.in_flight(plan.pp, rounded, plan.chunks, rank) for rank in range(plan.pp)]:
            yield rounded
        few *= 2


def _with_microbatches(job: Job, count: int) -> Job:
    """The same plan with `count` micro-batches of the same size."""
    batch = job.microbatch_size * job.plan.replicas * count
    return replace(job, plan=replace(job.plan, microbatches=count), training=replace(job.training, batch=batch))


@dataclass(frozen=True)
class _Tried:
    """A replayed step: the job, its highest total and what comes again in it. picoseconds: until its end."""

    job: Job
    picoseconds: int
    repeats: Repeats

    def repeat(self, few: int) -> Repeat | None:
        """What the step repeats after the fewest micro-batches."""
        found = (self.repeats.every(lag) for lag in range(1, few // 2))
        return next((repeat for repeat in found if repeat), None)

    def foretold(self, job: Job, few: int, repeat: Repeat) -> Foretold:
        """Of all micro-batches of `job`."""
        rounds = (job.plan.microbatches - few) // repeat.lag
        nanoseconds = (self.picoseconds + rounds * repeat.later) // _PS_IN_NS
        peak = max(row["total_peak"] for row in predicted_memory(self.job))
        return Foretold(nanoseconds / 1e9, peak, few)


def _replayed(job: Job, cluster: Cluster, like: tuple[int, ...], cache_dir: Path | None) -> _Tried:
    program, ranks = compile_job(job), sorted(set(like))
    rehearsed = rehearse(job, program, ranks, cluster.backend, cache_dir, with_memory=False)
    known = graph(step_rows(rehearsed, 0, dict(enumerate(like))))
    seconds = costs_on(cluster, job.world_size, job.training.precision)(known.rows)
    times = times_of(known, seconds)
    return _Tried(job, int(times.end.max()), Repeats(known, seconds, times))
