"""The planner: of all legal plans of a model on n GPUs, which fit, and which of these is fastest?

Every plan is estimated in closed form (`engine.planner.estimate.memory`, `.estimate`); the best few are then replayed
(`engine.prediction.simulate`), and ranked again by what the replay says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np

from engine.cluster.cluster import Cluster
from engine.cluster.roofline import peak_flops
from engine.job.job import Job
from engine.planner.estimate.estimate import PARTS, Estimator
from engine.planner.estimate.memory import CATEGORIES
from engine.planner.explain import sentences
from engine.planner.plans import Space, shapes, variants
from engine.planner.refusals import check_gpus, check_model, reserve_of, why_empty, why_unfit
from engine.planner.result import Candidate, Search
from engine.planner.table import Legal, PlanTable, fitting
from engine.prediction.formulas import model_flops
from engine.prediction.peak_memory import predicted_memory
from engine.prediction.published_models import Preset, preset
from engine.prediction.simulate import simulate

KEPT = 100
"""Plans that a search hands back as jobs, best first."""


def search(
    preset_or_job: str | Preset | Job,
    cluster: Cluster,
    gpus: int,
    *,
    fixed: Mapping[str, object] | None = None,
    reserve_bytes: int | None = None,
    refine: int = 5,
    kept: Path | None = None,
) -> Search:
    """Ranks every legal plan of a model on `gpus` devices of `cluster`.

    fixed: job options that keep these values, degrees and knobs included; the other options of the plan are searched
    if they are among `planning.plans.KNOBS`, else as the job has them. reserve_bytes: of each device's memory, kept
    free; default: `planning.refusals.RESERVED` of it. refine: how many of the best are replayed. kept: a folder in
    which what was executed is kept (`engine.prediction.rehearsal.template_cache`). All GPUs are used unless no legal
    plan can.

    Raises `JobRefused` in one sentence: an option that is wrong, no legal plan, a cluster too small, or a model that
    fits nowhere.
    """
    space = Space.of(_job(preset_or_job), fixed or {})
    check_gpus(cluster, gpus)
    check_model(space)
    ranks, legal = most_ranks(space, gpus)
    limit = reserve_of(cluster, ranks, reserve_bytes)
    estimator = Estimator(space, cluster, ranks, sorted({shape.tp for shape, _ in legal}), kept)
    table, dropped = fitting(estimator, legal, limit)
    if not len(table):
        raise why_unfit(estimator, legal, limit)
    best = np.argsort(table.seconds, kind="stable")[:KEPT].tolist()
    ranked = _ranked([_candidate(table, i) for i in best], cluster, refine, limit, kept)
    winner = next(i for i in best if table.job(i) == ranked[0].job)
    found = Search(
        ranked, {knob: _candidate(table, i) for knob, i in table.nearest(winner).items()}, dropped,
        sum(len(many) for _, many in legal), len(table), gpus, gpus - ranks, limit, space.job.precision.terms(),
    )  # fmt: skip
    return dataclasses.replace(found, sentences=sentences(found, cluster))


def _job(preset_or_job: str | Preset | Job) -> Job:
    if isinstance(preset_or_job, str):
        preset_or_job = preset(preset_or_job)
    return preset_or_job.job if isinstance(preset_or_job, Preset) else preset_or_job


def most_ranks(space: Space, gpus: int) -> tuple[int, Legal]:
    """The most GPUs that a legal plan can use, and all plans that use so many. Raises `JobRefused` if there is none."""
    together = prod(max(1, getattr(space.job.plan, axis)) for axis in space.job.plan.degrees if axis in space.fixed)
    for ranks in range(gpus // together * together, 0, -together):
        legal = [(shape, variants(space, shape)) for shape in shapes(space, ranks)]
        legal = [(shape, many) for shape, many in legal if len(many)]
        if legal:
            return ranks, legal
    raise why_empty(space, gpus)


def _candidate(table: PlanTable, i: int) -> Candidate:
    memory = dict(zip(CATEGORIES, table.memory[:, i].tolist(), strict=True))
    parts = dict(zip(PARTS, table.parts[:, i].tolist(), strict=True))
    one = Candidate(table.job(i), 0.0, 0.0, 0.0, memory, sum(memory.values()), parts)
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
    best: list[Candidate], cluster: Cluster, refine: int, limit: int, kept: Path | None
) -> tuple[Candidate, ...]:
    """The first `refine` replayed and ranked again; a replay that holds too much after all is left out."""
    replayed = [_replayed(one, cluster, kept) for one in best[:refine]]
    fitting = sorted((one for one in replayed if one.bytes <= limit), key=lambda one: one.seconds)
    return (*fitting, *best[refine:]) if fitting else tuple(best)


def _replayed(one: Candidate, cluster: Cluster, kept: Path | None) -> Candidate:
    seconds = simulate(one.job, cluster, kept=kept).metrics["seconds"][0].as_py()
    exact = max(row["total_peak"] for row in predicted_memory(one.job))
    return dataclasses.replace(_timed(one, cluster, seconds), bytes=exact, refined=True)
