"""The planner: of all legal plans of a model on n GPUs, which fit, and which of these is fastest?

Of every plan is told what it holds (`engine.planner.estimate.memory`) and how long it takes at least; those that might
be among the fastest are estimated (`engine.planner.estimate.estimate`), of those that might be faster yet other
partitions are tried (`partitions.py`), and the best few of these are replayed (`engine.prediction.steady`), and
ranked again by what the replay says.
"""

from __future__ import annotations

import dataclasses
import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np

from engine.cluster.cluster import Cluster
from engine.cluster.roofline import peak_flops
from engine.job.job import Job
from engine.planner.estimate.bounds import bound
from engine.planner.estimate.estimate import PARTS, Estimator
from engine.planner.estimate.memory import CATEGORIES
from engine.planner.explain import sentences
from engine.planner.fewer import fewer_ranks
from engine.planner.partitions import other_partitions
from engine.planner.plans import Legal, Space, shapes, variants
from engine.planner.refusals import check_gpus, check_model, reserve_of, why_empty, why_unfit
from engine.planner.result import Candidate, Search
from engine.planner.table import EFFORT, Place, PlanTable, fitting
from engine.prediction.formulas import model_flops
from engine.prediction.published_models import Preset, preset
from engine.prediction.steady import foretell

CLIMBS = 3
"""How often a search goes on from a plan to a faster one that is nearest to it."""
KEPT = 20
"""Plans that a search hands back as jobs at most, best first."""


def search(
    preset_or_job: str | Preset | Job,
    cluster: Cluster,
    gpus: int,
    *,
    fixed: Mapping[str, object] | None = None,
    reserve_bytes: int | None = None,
    refine: int = 5,
    cache_dir: Path | None = None,
) -> Search:
    """Ranks every legal plan of a model on `gpus` devices of `cluster`.

    fixed: job options that keep these values, degrees and knobs included; the other options of the plan are searched
    if they are among `engine.planner.plans.KNOBS`, else as the job has them. reserve_bytes: of each device's memory,
    kept free; default: `engine.planner.refusals.RESERVED` of it. refine: how many of the best are replayed. cache_dir:
    in which what was executed is kept (`engine.prediction.op_templates.template_cache`). Plans that leave GPUs idle are
    offered where they are faster than all that use as many as any plan can.

    Raises `JobRefused` in one sentence: an option that is wrong, no legal plan, a cluster too small, or a model that
    fits nowhere.
    """
    space = Space.of(_job(preset_or_job), fixed or {})
    check_gpus(cluster, gpus)
    check_model(space)
    with _paused_collector():
        ranks, legal = most_ranks(space, gpus)
        limit = reserve_of(cluster, ranks, reserve_bytes)
        estimator = Estimator(space, cluster, ranks, sorted({shape.tp for shape, _ in legal}), cache_dir)
        table, dropped, nearly = fitting(estimator, legal, limit)
        best, untried = _fastest(estimator, table, nearly, gpus, limit)
        if not best:
            raise why_unfit(estimator, legal, limit)
        ranked = _ranked([_candidate(place, gpus) for place in best], cluster, refine, limit, cache_dir)
        winner = next(place for place in best if place.job == ranked[0].job)
        nearest = {knob: _candidate(place, gpus) for knob, place in _nearest(table, winner).items()}
        full = None if winner.job.world_size == ranks else next((p for p in best if p.job.world_size == ranks), None)
    found = Search(
        ranked, nearest, dropped, sum(len(plans) for _, plans in legal), len(table), gpus, ranked[0].idle_gpus, limit,
        space.job.precision.terms(), estimated=table.estimated, unsure=table.unsure(best[0].seconds),
        full=None if full is None else _candidate(full, gpus), untried_partitions=untried,
    )  # fmt: skip
    return dataclasses.replace(found, sentences=sentences(found, cluster))


def _fastest(estimator: Estimator, table: PlanTable, nearly: Legal, gpus: int, limit: int) -> tuple[list[Place], int]:
    """The fastest plans, at most KEPT and the fastest of the table among them, fastest first; and of how many no other
    partition was tried although it might be faster still."""
    best = [Place(table, i) for i in _best_of(table)]
    others = other_partitions(table, nearly, limit, best[0].seconds if best else math.inf)
    found = sorted([*best, *others.places], key=_seconds)
    if found:
        found += _with_idle(found[0].seconds, estimator, gpus, limit)
    kept = sorted(found, key=_seconds)[:KEPT]
    return kept if not best or best[0] in kept else [*kept[:-1], best[0]], others.unsure


def _best_of(table: PlanTable) -> list[int]:
    """The fastest plans of a table, at most KEPT, the fastest of which is faster than the plans nearest to it, too: the
    table alone stops when it has looked at enough programs."""
    best = table.best(KEPT)
    for _ in range(CLIMBS if best else 0):
        table.nearest(table.knobs[best[0]])
        before, best = best[0], table.best(KEPT, effort=0)
        if best[0] == before:
            break
    return best


def _seconds(place: Place) -> float:
    return place.seconds


def _nearest(table: PlanTable, winner: Place) -> dict[str, Place]:
    """See `PlanTable.nearest`; and if the winner has a partition of its own, the same plan under the balanced one."""
    knobs = winner.table.knobs[winner.i]
    found = {knob: Place(table, i) for knob, i in table.nearest(knobs).items()}
    same = np.flatnonzero((table.knobs == knobs).all(axis=1))
    if winner.table is not table and winner.shape.partition and len(same):
        found["partition"] = Place(table, table.best(1, same)[0])
    return found


def _with_idle(seconds: float, estimator: Estimator, gpus: int, limit: int) -> list[Place]:
    """Plans on fewer GPUs that take less than `seconds`."""
    found: list[Place] = []
    for ranks, legal in fewer_ranks(estimator, gpus, estimator.places.world, seconds).items():
        smaller = Estimator(estimator.space, estimator.cluster, ranks, (), estimator.cache_dir)
        smaller.units = estimator.units  # what has been executed holds for any number of ranks
        bounds = [bound(smaller, shape, plans) < seconds for shape, plans in legal]
        hopeful = [(shape, plans.where(may)) for (shape, plans), may in zip(legal, bounds, strict=True) if may.any()]
        table, _, nearly = fitting(smaller, hopeful, limit)
        found += [Place(table, i) for i in table.best(KEPT, below=seconds, effort=EFFORT // 10)]
        seconds = min([seconds, *(place.seconds for place in found)])
        found += other_partitions(table, nearly, limit, seconds).places
        seconds = min([seconds, *(place.seconds for place in found)])
    return found


@contextmanager
def _paused_collector() -> Iterator[None]:
    """Without garbage collection: it would go through all of torch's objects again and again for the many small ones
    that a search makes, none of which is garbage before its end."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _job(preset_or_job: str | Preset | Job) -> Job:
    if isinstance(preset_or_job, str):
        preset_or_job = preset(preset_or_job)
    return preset_or_job.job if isinstance(preset_or_job, Preset) else preset_or_job


def most_ranks(space: Space, gpus: int) -> tuple[int, Legal]:
    """The most GPUs that a legal plan can use, and all plans that use so many. Raises `JobRefused` if there is none."""
    together = prod(max(1, getattr(space.job.plan, axis)) for axis in space.job.plan.degrees if axis in space.fixed)
    for ranks in range(gpus // together * together, 0, -together):
        legal = [(shape, variants(space, shape)) for shape in shapes(space, ranks)]
        legal = [(shape, plans) for shape, plans in legal if len(plans)]
        if legal:
            return ranks, legal
    raise why_empty(space, gpus)


def _candidate(place: Place, gpus: int) -> Candidate:
    table, i, job = place.table, place.i, place.job
    memory = dict(zip(CATEGORIES, table.memory[:, i].tolist(), strict=True))
    parts = dict(zip(PARTS, table.parts[:, i].tolist(), strict=True))
    one = Candidate(job, 0.0, 0.0, 0.0, memory, sum(memory.values()), parts, idle_gpus=gpus - job.world_size)
    return _timed(one, table.estimator.cluster, one.estimate)


def _timed(one: Candidate, cluster: Cluster, seconds: float) -> Candidate:
    job = one.job
    peak = _peak(cluster, job.world_size, job.training.precision)
    tokens = job.training.batch * job.model.seq
    return dataclasses.replace(
        one, seconds=seconds, mfu=model_flops(job) / seconds / peak, tokens_per_second=tokens / seconds
    )


@lru_cache(maxsize=64)
def _peak(cluster: Cluster, ranks: int, precision: str) -> float:
    """FLOP/s of all devices together."""
    return sum(peak_flops(cluster.device_of(rank, ranks), precision) for rank in range(ranks))


def _ranked(
    best: list[Candidate], cluster: Cluster, refine: int, limit: int, cache_dir: Path | None
) -> tuple[Candidate, ...]:
    """The first `refine` replayed and ranked again; a replay that holds too much after all is left out."""
    replayed = [_replayed(one, cluster, cache_dir) for one in best[:refine]]
    fitting = sorted((one for one in replayed if one.bytes <= limit), key=lambda one: one.seconds)
    return (*fitting, *best[refine:]) if fitting else tuple(best)


def _replayed(one: Candidate, cluster: Cluster, cache_dir: Path | None) -> Candidate:
    found = foretell(one.job, cluster, cache_dir)
    return dataclasses.replace(_timed(one, cluster, found.seconds), bytes=found.peak_bytes, refined=True)
