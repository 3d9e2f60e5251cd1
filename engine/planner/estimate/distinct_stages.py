"""The pipeline ranks of a plan, by kind: ranks that hold equally many blocks and the same ends behave alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job, Model, Plan
from engine.model.params import unit_size
from engine.model.units import TOKENS, stage_lane, stages
from engine.planner.plans import Shape

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class LaneKind:
    """blocks: in each chunk, first to last. lanes: the pipeline ranks of this kind, in order."""

    blocks: tuple[int, ...]
    first: bool
    last: bool
    lanes: tuple[int, ...]

    @property
    def counts(self) -> Numbers:
        """Embeddings, blocks and heads that it computes."""
        return np.array([int(self.first), sum(self.blocks), int(self.last)])


@dataclass(frozen=True, eq=False)
class Held:
    """The buckets of a lane in the order in which backward finishes them.

    padded, shard: elements of each (see `engine.model.buckets`).
    """

    padded: Numbers
    shard: Numbers


def lane_kinds(job: Job, shape: Shape) -> tuple[LaneKind, ...]:
    """Of a shape of the job; only the model and the partition of `job` matter."""
    return _lane_kinds(job.model, job.plan.partition, shape.schedule, shape.pp, shape.chunks)


@lru_cache(maxsize=4096)
def _lane_kinds(
    model: Model, partition: tuple[int, ...] | None, schedule: str, pp: int, chunks: int
) -> tuple[LaneKind, ...]:
    plan = Plan(schedule=schedule, pp=pp, chunks=chunks, partition=partition)
    found: dict[tuple[tuple[int, ...], bool, bool], list[int]] = {}
    mine: list[list[tuple[str, ...]]] = [[] for _ in range(pp)]
    for stage, units in enumerate(stages(Job(model=model, plan=plan))):
        mine[stage_lane(plan, stage)].append(units)
    for z, chunk in enumerate(mine):
        blocks = tuple(sum(unit.startswith("block") for unit in units) for units in chunk)
        every = {unit for units in chunk for unit in units}
        found.setdefault((blocks, "embedding" in every, "head" in every), []).append(z)
    return tuple(LaneKind(*key, tuple(lanes)) for key, lanes in found.items())


def held(job: Job, shape: Shape, kind: LaneKind, zero: int) -> Held:
    """What a lane of this kind holds under ZeRO stage `zero`: `engine.model.buckets`, by numbers alone."""
    cap = job.plan.bucket_kb * 1024 // job.precision.grad if zero < 2 else 0
    return _held(job.model, shape.tp, kind, cap, shape.dp if zero else 1)


@lru_cache(maxsize=16384)
def _held(model: Model, tp: int, kind: LaneKind, cap: int, shards: int) -> Held:
    order = ["head"] * kind.last + ["block0"] * sum(kind.blocks) + ["embedding"] * kind.first
    elements: list[int] = []
    for name in order:
        size = unit_size(model, tp, name)
        if not elements or elements[-1] + size > cap:
            elements.append(0)
        elements[-1] += size
    if model.tied and (kind.first or kind.last):
        elements.append(unit_size(model, tp, TOKENS))
    shard = -(-np.array(elements, np.int64) // shards)
    return Held(shard * shards, shard)


def in_use(model: Model, kind: LaneKind, per_bucket: NDArray[Any]) -> NDArray[Any]:
    """Of numbers for each unit's bucket those for each computed unit: an end of a tied model uses the tokens too."""
    if not (model.tied and (kind.first or kind.last)):
        return per_bucket
    uses = per_bucket[:-1].copy()
    uses[0] += per_bucket[-1] * kind.last
    uses[-1] += per_bucket[-1] * kind.first
    return uses
