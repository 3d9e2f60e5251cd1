"""What the planner refuses, in one sentence each: the wish, the rule, and what would work."""

from __future__ import annotations

import dataclasses

import numpy as np

from engine.cluster.cluster import Cluster
from engine.job.errors import JobRefused
from engine.job.job import Job, Model, Plan
from engine.job.rules import check, check_healthy
from engine.planner.estimate.estimate import Estimator
from engine.planner.estimate.memory import CATEGORIES, peaks
from engine.planner.plans import KNOBS, Legal, Space, job_of, shapes, variants

MAX_GPUS, MAX_BATCH = 32_768, 1_000_000
RESERVED = 0.05
"""Part of a device's memory kept free by default: the context of the driver, workspaces, fragmentation."""


def check_gpus(cluster: Cluster, gpus: int) -> None:
    """Raises `JobRefused` unless the cluster has so many."""
    if gpus < 1:
        raise JobRefused(f"gpus={gpus} is too small: use 1 or more.")
    if gpus > MAX_GPUS:
        raise JobRefused(f"gpus={gpus} is more than a search can cover: use at most {MAX_GPUS:,}.")
    if cluster.devices is not None and gpus > cluster.devices:
        raise JobRefused(f"gpus={gpus} is more than the {cluster.devices} of cluster {cluster.name}: use fewer.")


def check_model(space: Space) -> None:
    """Raises `JobRefused` for a model, training or ZeRO stage that no plan can save, or axes that are not searched."""
    check_healthy(space.job)
    if space.job.plan.axes:
        raise JobRefused(f"axes={space.job.plan.axes} are not planned for: leave axes out, or use `lab simulate`.")
    if space.job.model.family != Model.family:
        raise JobRefused(
            f"family={space.job.model.family} is not planned for: use family={Model.family}, or `lab simulate`."
        )
    if space.job.training.batch > MAX_BATCH:
        raise JobRefused(f"batch={space.job.training.batch} is more than a search covers: use at most {MAX_BATCH:,}.")
    plan = dataclasses.replace(
        space.job.plan,
        **{name: getattr(Plan(microbatches=1), name) for name in KNOBS if name != "zero"},
    )
    check(dataclasses.replace(space.job, plan=plan))


def reserve_of(cluster: Cluster, ranks: int, reserve_bytes: int | None) -> int:
    """Bytes that a plan may hold on each device. Raises `JobRefused` for a reserve that leaves nothing."""
    whole = min(cluster.device_of(rank, ranks).memory_bytes for rank in range(ranks))
    reserve = round(RESERVED * whole) if reserve_bytes is None else reserve_bytes
    if not 0 <= reserve < whole:
        raise JobRefused(f"a reserve of {reserve / 1e9:g} GB is not possible: a device has {whole / 1e9:g} GB.")
    return whole - reserve


def why_empty(space: Space, gpus: int) -> JobRefused:
    """Why no plan is legal: the first rule broken by what is fixed, everything else being as simple as it can be."""
    plan, fixed = space.job.plan, space.fixed
    several = plan.schedule == "interleaved" and "schedule" in fixed
    simplest = Plan(pp=2, chunks=2, microbatches=2) if several else Plan(microbatches=1)
    free = {name: getattr(simplest, name) for name in KNOBS if name not in fixed}
    job = dataclasses.replace(space.job, plan=dataclasses.replace(plan, **free))
    try:
        check(job)
    except JobRefused as error:
        return error
    if job.world_size > gpus:
        return JobRefused(f"dp × tp × pp = {job.world_size} needs more than gpus={gpus}: use smaller degrees.")
    wished = ", ".join(f"{name}={getattr(plan, name)}" for name in KNOBS if name in fixed)
    return JobRefused(f"no plan on {gpus} GPUs or fewer has {wished}: fix fewer of them.")


def why_unfit(estimator: Estimator, legal: Legal, limit: int) -> JobRefused:
    """The plan that needs least, what it needs, and how many GPUs would do."""
    job, memory = _leanest(estimator, legal)
    plan = job.plan
    parts = " + ".join(f"{n / 1e9:.3g} GB {name}" for name, n in zip(CATEGORIES, memory.tolist(), strict=True) if n)
    where = f"tp={plan.tp}, pp={plan.pp}, dp={plan.dp}, zero={plan.zero}, recompute={plan.recompute}"
    most = f"each device has {limit / 1e9:.3g} GB besides the reserve"
    enough = _enough(estimator, limit)
    advice = (
        f"use about {enough} GPUs or more" if enough else "use a smaller model or batch, or devices with more memory"
    )
    return JobRefused(
        f"the model fits nowhere on {job.world_size} GPUs: even {where} needs {memory.sum() / 1e9:.3g} GB a GPU"
        f" ({parts}; {job.precision.terms()}), and {most}: {advice}."
    )


def _leanest(estimator: Estimator, legal: Legal) -> tuple[Job, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    best = None
    for shape, plans in legal:
        memory = peaks(estimator.space, shape, plans, estimator.unit_sizes(shape.tp))
        i = int(memory.sum(axis=0).argmin())
        if best is None or memory[:, i].sum() < best[1].sum():
            best = job_of(estimator.space, shape, plans, i), memory[:, i]
    assert best is not None
    return best


def _enough(estimator: Estimator, limit: int) -> int | None:
    """The first doubling of the GPUs on which some plan fits; None if none does, or the cluster has not so many."""
    space, most = estimator.space, min(estimator.cluster.devices or MAX_GPUS, MAX_GPUS)
    ranks = 2 * estimator.places.world
    while ranks <= most:
        legal = [(shape, variants(space, shape)) for shape in shapes(space, ranks)]
        if legal and _leanest(estimator, legal)[1].sum() <= limit:
            return ranks
        ranks *= 2
    return None
