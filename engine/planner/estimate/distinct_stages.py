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
    units, home = stage_units(model, partition, schedule, pp, chunks)
    found: dict[tuple[tuple[int, ...], bool, bool], list[int]] = {}
    for z in range(pp):
        mine = units[home == z]
        key = tuple(mine[:, 1].tolist()), bool(mine[:, 0].any()), bool(mine[:, 2].any())
        found.setdefault(key, []).append(z)
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
        size = unit_size(model, {"tp": tp}, name)
        if not elements or elements[-1] + size > cap:
            elements.append(0)
        elements[-1] += size
    if model.tied and (kind.first or kind.last):
        elements.append(unit_size(model, {"tp": tp}, TOKENS))
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


@lru_cache(maxsize=4096)
def stage_units(
    model: Model, partition: tuple[int, ...] | None, schedule: str, pp: int, chunks: int
) -> tuple[Numbers, Numbers]:
    """(embeddings, blocks and heads of each stage, [stages, 3]; the pipeline rank of each)."""
    plan = Plan(schedule=schedule, pp=pp, chunks=chunks, partition=partition)
    dealt = stages(Job(model=model, plan=plan))
    counts = [("embedding" in u, sum(name.startswith("block") for name in u), "head" in u) for u in dealt]
    return np.array(counts, np.int64), np.array([pp_rank_of_stage(plan, s) for s in range(len(dealt))])


@lru_cache(maxsize=64)
def whole_backwards(schedule: str) -> bool:
    """Whether a schedule never runs a backward in two parts."""
    chunks = SCHEDULES[schedule].fitting_chunks(1)
    return all(
        a.kind in (Kind.FORWARD, Kind.BACKWARD) for lane in SCHEDULES[schedule].order(2, 2, chunks) for a in lane
    )
