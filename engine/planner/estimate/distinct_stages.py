"""The pipeline ranks of a plan, by kind: ranks that hold equally many blocks and the same ends behave alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job, Model, Plan
from engine.job.schedules import SCHEDULES
from engine.model.params import unit_size
from engine.model.units import TOKENS, pp_rank_of_stage, stages
from engine.planner.plans import Shape
from engine.program.kinds import Kind

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class RankKind:
    """blocks: in each chunk, first to last. pp_ranks: the pipeline ranks of this kind, in order."""

    blocks: tuple[int, ...]
    first: bool
    last: bool
    pp_ranks: tuple[int, ...]

    @property
    def counts(self) -> Numbers:
        """Embeddings, blocks and heads that it computes."""
        return np.array([int(self.first), sum(self.blocks), int(self.last)])


@dataclass(frozen=True, eq=False)
class BucketSizes:
    """The buckets of a pipeline rank in the order in which backward finishes them.

    padded, shard: elements of each (see `engine.model.buckets`).
    """

    padded: Numbers
    shard: Numbers


def rank_kinds(job: Job, shape: Shape) -> tuple[RankKind, ...]:
    """Of a shape of the job, of which only the model matters; in the order of their first pipeline ranks."""
    return _rank_kinds(job.model, shape.partition, shape.schedule, shape.pp, shape.chunks)


@lru_cache(maxsize=4096)
def _rank_kinds(
    model: Model, partition: tuple[int, ...] | None, schedule: str, pp: int, chunks: int
) -> tuple[RankKind, ...]:
    units, home = stage_units(model, partition, schedule, pp, chunks)
    found: dict[tuple[tuple[int, ...], bool, bool], list[int]] = {}
    for pp_rank in range(pp):
        mine = units[home == pp_rank]
        key = tuple(mine[:, 1].tolist()), bool(mine[:, 0].any()), bool(mine[:, 2].any())
        found.setdefault(key, []).append(pp_rank)
    return tuple(RankKind(*key, tuple(pp_ranks)) for key, pp_ranks in found.items())


def bucket_sizes(job: Job, shape: Shape, kind: RankKind, zero: int) -> BucketSizes:
    """What a pipeline rank of this kind holds under ZeRO stage `zero`: `engine.model.buckets`, by numbers alone."""
    cap = job.plan.bucket_kb * 1024 // job.precision.grad if zero < 2 else 0
    return _bucket_sizes(job.model, shape.tp, kind, cap, shape.dp if zero else 1)


@lru_cache(maxsize=16384)
def _bucket_sizes(model: Model, tp: int, kind: RankKind, cap: int, shards: int) -> BucketSizes:
    order = ["head"] * kind.last + ["block0"] * sum(kind.blocks) + ["embedding"] * kind.first
    size_of = {name: unit_size(model, {"tp": tp}, name) for name in set(order)}
    elements: list[int] = []
    for name in order:
        size = size_of[name]
        if not elements or elements[-1] + size > cap:
            elements.append(0)
        elements[-1] += size
    if model.tied and (kind.first or kind.last):
        elements.append(unit_size(model, {"tp": tp}, TOKENS))
    shard = -(-np.array(elements, np.int64) // shards)
    return BucketSizes(shard * shards, shard)


def in_use(model: Model, kind: RankKind, per_bucket: NDArray[Any]) -> NDArray[Any]:
    """Of numbers for each unit's bucket those for each computed unit: an end of a tied model uses the tokens too."""
    if not (model.tied and (kind.first or kind.last)):
        return per_bucket
    uses = per_bucket[:-1].copy()
    uses[0] += per_bucket[-1] * kind.last
    uses[-1] += per_bucket[-1] * kind.first
    return uses


@lru_cache(maxsize=4096)
def stage_units(
    model: Model, partition: tuple[int, ...] | None, schedule: str, pp: int, chunks: int
) -> tuple[Numbers, Numbers]:
    """(embeddings, blocks and heads of each stage, [stages, 3]; the pipeline rank of each)."""
    plan = Plan(schedule=schedule, pp=pp, chunks=chunks, partition=partition)
    units_of_stages = stages(Job(model=model, plan=plan))
    counts = [
        ("embedding" in units, sum(name.startswith("block") for name in units), "head" in units)
        for units in units_of_stages
    ]
    return np.array(counts, np.int64), np.array(
        [pp_rank_of_stage(plan, stage) for stage in range(len(units_of_stages))]
    )


@lru_cache(maxsize=64)
def whole_backwards(schedule: str) -> bool:
    """Whether a schedule never runs a backward in two parts."""
    chunks = SCHEDULES[schedule].fitting_chunks(1)
    return all(
        action.kind in (Kind.FORWARD, Kind.BACKWARD)
        for lane in SCHEDULES[schedule].order(2, 2, chunks)
        for action in lane
    )
