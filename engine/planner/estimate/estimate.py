"""Step times of plans, thousands at once: what `engine.prediction.simulate` finds, from programs in outline.

Plans whose programs differ only in what things cost share an outline (`engine.planner.estimate.outline`), which is
walked once for all of them. Of many micro-batches two numbers of them are walked, a round of the pipeline apart: every
further round takes as long as the last one. Left out is what only slow hosts and shared cores add, but for the host's
own time for each row (`engine.prediction.replay.op_seconds`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.cluster.cluster import Cluster
from engine.job.job import Job
from engine.model.buckets import lane_buckets
from engine.planner.estimate.outline import Outline, outline
from engine.planner.estimate.prices import Block, Prices
from engine.planner.estimate.walk import walk
from engine.planner.plans import Legal, Shape, Space, Variants, split

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
MOST_AT_ONCE = 512
"""Plans walked together, so that what they wait for fits in memory."""


@dataclasses.dataclass(frozen=True)
class Alike:
    """What decides the events of a step. zero: ZeRO-0 and 1 have the same. walked: the numbers of micro-batches."""

    schedule: str
    pp: int
    chunks: int
    walked: tuple[int, ...]
    zero: int
    replicas: bool
    tensor: bool
    again: bool
    buckets: object


class Estimator(Prices):
    """Estimates plans of one space on one cluster, all of the same number of ranks."""

    def __init__(
        self, space: Space, cluster: Cluster, ranks: int, tps: Iterable[int], kept: Path | None = None
    ) -> None:
        super().__init__(space, cluster, ranks, tps, kept)
        self._outlines: dict[tuple[Alike, int], Outline] = {}
        self._names: dict[object, object] = {}

    def seconds(self, plans: Legal) -> list[Floats]:
        """Seconds of a step for every plan of several shapes."""
        out = [np.zeros(len(many)) for _, many in plans]
        groups: dict[Alike, list[tuple[int, Numbers]]] = {}
        for at, (shape, many) in enumerate(plans):
            for alike, these in self._alike(shape, many):
                groups.setdefault(alike, []).append((at, these))
        for alike, members in groups.items():
            for at, these, seconds in self._together(alike, members, plans):
                out[at][these] = seconds
        return out

    def _alike(self, shape: Shape, many: Variants) -> Iterable[tuple[Alike, Numbers]]:
        columns = np.stack([many.microbatches, np.maximum(many.zero, 1) * (shape.dp > 1), many.recompute == 2])
        kinds, which = np.unique(columns, axis=1, return_inverse=True)
        for k, (m, zero, again) in enumerate(kinds.T.tolist()):
            buckets = self._buckets(shape) if zero < 2 else None
            yield Alike(
                shape.schedule, shape.pp, shape.chunks, _walked(m, shape.pp), zero, shape.dp > 1, shape.tp > 1,
                bool(again), buckets,
            ), np.flatnonzero(which.ravel() == k)  # fmt: skip

    def _buckets(self, shape: Shape) -> object:
        """What decides which units share a bucket under ZeRO-0 and 1."""
        key = (shape.tp, shape.pp, shape.schedule, shape.chunks)
        if key not in self._names:
            plan = dataclasses.replace(
                self.job.plan, dp=1, tp=shape.tp, pp=shape.pp, schedule=shape.schedule, chunks=shape.chunks
            )
            job = dataclasses.replace(self.job, plan=plan)
            self._names[key] = tuple(tuple(b.name for b in lane_buckets(job, z)) for z in range(shape.pp))
        return self._names[key]

    def _together(
        self, alike: Alike, members: Sequence[tuple[int, Numbers]], plans: Legal
    ) -> Iterable[tuple[int, Numbers, Floats]]:
        """(place of the shape in `plans`, which of its variants, their seconds)."""
        blocks = [self.block(plans[at][0], plans[at][1].where(these)) for at, these in members]
        ends = [self._walk(self._outline(alike, m, blocks), blocks) for m in alike.walked]
        seconds = ends[-1]
        if len(ends) > 1:
            few, more = alike.walked
            rounds = (np.concatenate([block.many.microbatches for block in blocks]) - more) / (more - few)
            seconds = ends[1] + rounds * (ends[1] - ends[0])
        edges = np.cumsum([len(block.many) for block in blocks])[:-1]
        for (at, these), mine in zip(members, np.split(seconds, edges), strict=True):
            yield at, these, mine

    def _walk(self, events: Outline, blocks: Sequence[Block]) -> Floats:
        costs = [self.of(events, block) for block in blocks]
        columns = max(cost.shape[1] for cost in costs)
        # a plan whose replicas are fewer sorts than another's has its first sort more often, which changes nothing
        every = [np.take(cost, np.arange(columns) * (np.arange(columns) < cost.shape[1]), axis=1) for cost in costs]
        whole = np.concatenate(every, axis=2)
        parts = range(0, whole.shape[2], MOST_AT_ONCE)
        return np.concatenate([walk(events, whole[:, :, i : i + MOST_AT_ONCE]) for i in parts])

    def _outline(self, alike: Alike, m: int, blocks: Sequence[Block]) -> Outline:
        if (alike, m) not in self._outlines:
            shape = max((block.shape for block in blocks), key=lambda shape: shape.tp)
            scatters = any(block.many.sequence.any() for block in blocks)
            plan = dataclasses.replace(
                self.job.plan, dp=1 + alike.replicas, tp=shape.tp, pp=alike.pp, schedule=alike.schedule,
                chunks=alike.chunks, microbatches=m, zero=alike.zero, sequence_parallel=scatters or shape.tp > 1,
                recompute="full" if alike.again else "none",
            )  # fmt: skip
            self._outlines[alike, m] = outline(dataclasses.replace(self.job, plan=plan))
        return self._outlines[alike, m]


def _walked(m: int, pp: int) -> tuple[int, ...]:
    """The numbers of micro-batches to walk for m of them: m itself, or two and three rounds and what is left of m."""
    over = m % pp
    return (m,) if m <= 5 * pp else (2 * pp + over, 3 * pp + over)


def seconds_of(job: Job, cluster: Cluster) -> float:
    """Of one plan. The job must have passed `rules.check`."""
    space, shape, one = split(job)
    estimator = Estimator(space, cluster, job.world_size, [shape.tp])
    return float(estimator.seconds([(shape, one)])[0][0])
