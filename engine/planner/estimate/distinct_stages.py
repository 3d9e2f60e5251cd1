"""The pipeline ranks of a plan, by kind: ranks that hold equally many blocks and the same ends behave alike."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job, Model
from engine.model.params import replicated_size, unit_size
from engine.model.units import TOKENS, stages
from engine.planner.plans import Shape

Numbers = NDArray[np.int64]
UNITS = ("embedding", "block", "head")


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

    padded, shard, replicated: elements of each (see `engine.model.buckets`). after: embeddings, blocks and heads whose
    last backwards follow on the bucket's, [buckets, 3].
    """

    padded: Numbers
    shard: Numbers
    replicated: Numbers
    after: Numbers


def lane_kinds(job: Job, shape: Shape) -> tuple[LaneKind, ...]:
    """Of a shape of the job; only the model and the partition of `job` matter."""
    return _lane_kinds(job.model, job.plan.partition, shape.pp, shape.chunks)


@lru_cache(maxsize=4096)
def _lane_kinds(model: Model, partition: tuple[int, ...] | None, pp: int, chunks: int) -> tuple[LaneKind, ...]:
    job = Job(model=model)
    dealt = stages(
        dataclasses.replace(job, plan=dataclasses.replace(job.plan, pp=pp, chunks=chunks, partition=partition))
    )
    blocks = [len(units) for units in dealt]
    blocks[0] -= 1
    blocks[-1] -= 1
    found: dict[tuple[tuple[int, ...], bool, bool], list[int]] = {}
    for z in range(pp):
        found.setdefault((tuple(blocks[z::pp]), z == 0, z == pp - 1), []).append(z)
    return tuple(LaneKind(*key, tuple(lanes)) for key, lanes in found.items())


def held(job: Job, shape: Shape, kind: LaneKind, zero: int) -> Held:
    """What a lane of this kind holds under ZeRO stage `zero`: `engine.model.buckets`, by numbers alone."""
    cap = job.plan.bucket_kb * 1024 // job.precision.grad if zero < 2 else 0
    return _held(job.model, shape.tp, shape.pp, kind, cap, shape.dp if zero else 1)


@lru_cache(maxsize=16384)
def _held(model: Model, tp: int, pp: int, kind: LaneKind, cap: int, shards: int) -> Held:
    order = [
        *([("head", len(kind.blocks) - 1)] if kind.last else []),
        *(("block0", c) for c in reversed(range(len(kind.blocks))) for _ in range(kind.blocks[c])),
        *([("embedding", 0)] if kind.first else []),
    ]
    after = _after([c for _, c in order], [name for name, _ in order], pp)
    degrees = {"tp": tp}
    of = {
        name: (unit_size(model, degrees, name), replicated_size(model, degrees, name)) for name in {n for n, _ in order}
    }
    elements: list[list[int]] = []
    done: list[int] = []  # place of the backward that completes each bucket
    for place, (name, _) in enumerate(order):
        size, replicated = of[name]
        if not elements or elements[-1][0] + size > cap:
            elements.append([0, 0])
            done.append(place)
        elements[-1][0] += size
        elements[-1][1] += replicated
        done[-1] = place
    if model.tied and (kind.first or kind.last):
        elements.append([unit_size(model, degrees, TOKENS), replicated_size(model, degrees, TOKENS)])
        done.append(len(order) - 1 if kind.first else 0)
    sizes = np.array(elements, np.int64)
    shard = -(-sizes[:, 0] // shards)
    return Held(shard * shards, shard, sizes[:, 1], after[done])


def _after(chunks: list[int], names: list[str], pp: int) -> Numbers:
    """Backwards that follow on each: those of its own chunk once, those of chunks done later p times over."""
    which = np.array([UNITS.index(name.removesuffix("0")) for name in names])
    chunk = np.array(chunks)
    one = np.eye(len(UNITS), dtype=np.int64)[which]
    until = np.cumsum(one[::-1], axis=0)[::-1] - one  # all that follow
    last_of_chunk = np.searchsorted(-chunk, -chunk, side="right") - 1  # chunks fall along the order
    later_chunks = until[last_of_chunk]
    return np.asarray(until + (pp - 1) * later_chunks)


def in_use(model: Model, kind: LaneKind, per_bucket: NDArray[Any]) -> NDArray[Any]:
    """Of numbers for each unit's bucket those for each computed unit: an end of a tied model uses the tokens too."""
    if not (model.tied and (kind.first or kind.last)):
        return per_bucket
    uses = per_bucket[:-1].copy()
    uses[0] += per_bucket[-1] * kind.last
    uses[-1] += per_bucket[-1] * kind.first
    return uses
