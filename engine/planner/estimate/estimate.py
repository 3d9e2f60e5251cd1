"""Step times of plans, thousands at once: what `engine.prediction.simulate` finds, from programs in outline.

Plans whose programs differ only in what things cost share an outline (`engine.planner.estimate.outline`), which is
walked once for all of them. Of many micro-batches two numbers of them are walked, a round of the pipeline apart: every
further round takes as long as the last one. Left out is what only slow hosts and shared cores add, but for the host's
own time for each row (`engine.prediction.replay.op_seconds`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.cluster.cluster import Cluster
from engine.job.job import Job
from engine.model.buckets import buckets_of_pp_rank
from engine.planner.estimate.distinct_stages import rank_kinds, whole_backwards
from engine.planner.estimate.events import HOST, UNITS, WORKS, Collective, Message, Outline, Price, Scalars, Step
from engine.planner.estimate.outline_cache import kept_outline
from engine.planner.estimate.prices import COMPUTING, TENSOR, Block, Prices
from engine.planner.estimate.walk import walk
from engine.planner.plans import RECOMPUTES, Legal, Shape, Space, Variants, split, walked
from engine.program.kinds import Kind

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
PARTS = ("compute", "recompute", "tensor", "pipeline", "data", "bubble", "optimizer")
"""What a step is made of, on the busiest pipeline rank: computing, computing again, waiting for tensor collectives, for
messages, and for the data axis, idling because of the schedule or of unequal stages, and the optimizer step."""
ROUNDING = 1e-9
"""Part of a step that sums of floats may be wrong by."""
FULL = RECOMPUTES.index("full")
MOST_AT_ONCE = 2048
"""Plans walked together, so that what they wait for fits in memory."""


@dataclasses.dataclass(frozen=True)
class Alike:
    """What decides the events of a step. zero: ZeRO-0 and 1 have the same. walked: the numbers of micro-batches.

    buckets: under ZeRO-0 and 1 which units share one. partition: `Shape.partition`.
    """

    schedule: str
    pp: int
    chunks: int
    partition: tuple[int, ...] | None
    walked: tuple[int, ...]
    zero: int
    replicas: bool
    tensor: bool
    again: bool
    buckets: object


class Estimator(Prices):
    """Estimates plans of one space on one cluster, all of the same number of ranks."""

    def __init__(
        self, space: Space, cluster: Cluster, ranks: int, tps: Iterable[int], cache_dir: Path | None = None
    ) -> None:
        super().__init__(space, cluster, ranks, tps, cache_dir)
        self._outlines: dict[tuple[Alike, int], Outline] = {}
        self._bucket_names: dict[object, object] = {}
        self.events = 0

    def parts(self, plans_of_shapes: Legal) -> list[Floats]:
        """For the plans of each of several shapes the seconds of each of PARTS, [PARTS, plans]; a step takes their sum.

        Communication and the optimizer step are what the step is longer by than without them.
        """
        out = [np.zeros((len(PARTS), len(plans))) for _, plans in plans_of_shapes]
        groups: dict[Alike, list[tuple[int, Numbers]]] = {}
        for at, (shape, plans) in enumerate(plans_of_shapes):
            for alike, these in self.alike(shape, plans):
                groups.setdefault(alike, []).append((at, these))
        for alike, members in groups.items():
            blocks = [self.block(plans_of_shapes[at][0], plans_of_shapes[at][1].where(these)) for at, these in members]
            busy = [self._busiest(block) for block in blocks]
            whole, no_messages, nothing_sent, no_step = self._ends(
                alike, blocks, np.concatenate(busy, axis=1).sum(axis=0)
            )
            done = 0
            for (at, these), its in zip(members, busy, strict=True):
                mine = slice(done, done := done + len(these))
                found = out[at][:, these]
                found[:3] = its
                found[3] = (whole - no_messages)[mine]
                found[4] = (no_messages - nothing_sent)[mine]
                idle = no_step[mine] - found[:3].sum(axis=0)
                found[5] = np.where(np.abs(idle) < ROUNDING * no_step[mine], 0.0, idle)
                found[6] = (nothing_sent - no_step)[mine]
                out[at][:, these] = found
        return out

    def alike(self, shape: Shape, plans: Variants) -> Iterator[tuple[Alike, Numbers]]:
        """The plans of a shape by what decides the events of their steps."""
        columns = np.stack([plans.microbatches, np.maximum(plans.zero, 1) * (shape.dp > 1), plans.recompute == FULL])
        kinds, which = np.unique(columns, axis=1, return_inverse=True)
        for number, (m, zero, again) in enumerate(kinds.T.tolist()):
            yield Alike(
                shape.schedule, shape.pp, shape.chunks, shape.partition, walked(m, shape.pp), zero, shape.dp > 1,
                shape.tp > 1, bool(again), self._buckets(shape) if zero < 2 else None,
            ), np.flatnonzero(which.ravel() == number)  # fmt: skip

    def _buckets(self, shape: Shape) -> object:
        """What decides which units share a bucket under ZeRO-0 and 1."""
        key = (shape.tp, shape.pp, shape.schedule, shape.chunks, shape.partition)
        if key not in self._bucket_names:
            plan = dataclasses.replace(
                self.job.plan, dp=1, tp=shape.tp, pp=shape.pp, schedule=shape.schedule, chunks=shape.chunks,
                partition=shape.partition,
            )  # fmt: skip
            job = dataclasses.replace(self.job, plan=plan)
            self._bucket_names[key] = tuple(
                tuple(b.name for b in buckets_of_pp_rank(job, pp_rank)) for pp_rank in range(shape.pp)
            )
        return self._bucket_names[key]

    def _ends(self, alike: Alike, blocks: Sequence[Block], busy: Floats) -> Floats:
        """[4, plans]: seconds of a step, without messages, without any other communication, and without its update.

        busy: seconds that the busiest rank has to do in all, by which no round can be shorter. Nor can a step be
        shorter than with less to pay for.
        """
        ends = [self._walk(self._outline(alike, m, blocks), blocks) for m in alike.walked]
        if len(ends) == 1:
            return ends[0]
        few, more = alike.walked
        m = np.concatenate([block.plans.microbatches for block in blocks])
        a_round = np.maximum(ends[1] - ends[0], busy * (more - few) / m)
        found = ends[1] + (m - more) / (more - few) * a_round
        return np.asarray(np.maximum.accumulate(found[::-1], axis=0)[::-1])

    def _walk(self, events: Outline, blocks: Sequence[Block]) -> Floats:
        costs = [self.seconds(events, block) for block in blocks]
        columns = max(cost.shape[1] for cost in costs)
        # a plan whose replicas are fewer sorts than another's has its first sort more often, which changes nothing
        every = [np.take(cost, np.arange(columns) * (np.arange(columns) < cost.shape[1]), axis=1) for cost in costs]
        whole = np.concatenate(every, axis=2)
        free: tuple[type[Price], ...] = ()
        versions = [whole]
        for more in ((Message,), (Collective, Scalars), (Step,)):
            free = (*free, *more)
            costly = np.array([not isinstance(price, free) for price in events.prices])
            versions.append(whole * costly[:, None, None])
        together = np.concatenate(versions, axis=2)
        parts = range(0, together.shape[2], MOST_AT_ONCE)
        ends = np.concatenate([walk(events, together[:, :, i : i + MOST_AT_ONCE]) for i in parts])
        return ends.reshape(len(versions), -1)

    def _outline(self, alike: Alike, m: int, blocks: Sequence[Block]) -> Outline:
        if (alike, m) not in self._outlines:
            shape = max((block.shape for block in blocks), key=lambda shape: shape.tp)
            plan = dataclasses.replace(
                self.job.plan, dp=1 + alike.replicas, tp=shape.tp, pp=alike.pp, schedule=alike.schedule,
                chunks=alike.chunks, partition=alike.partition, microbatches=m, zero=alike.zero,
                sequence_parallel=alike.tensor, recompute="full" if alike.again else "none",
            )  # fmt: skip
            self._outlines[alike, m] = kept_outline(dataclasses.replace(self.job, plan=plan))
            self.events += len(self._outlines[alike, m].events)
        return self._outlines[alike, m]

    def _busiest(self, block: Block) -> Floats:
        """[computing, computing again, tensor collectives; plans] of the rank that has most to do."""
        best = np.zeros((3, len(block.plans)))
        ranks = {(kind.pp_ranks[0], *kind.counts.tolist()) for kind in rank_kinds(self.job, block.shape)}
        if len(block.mesh.places.speeds[0]) > 1:
            ranks = {
                (pp_rank, *kind.counts.tolist())
                for kind in rank_kinds(self.job, block.shape)
                for pp_rank in kind.pp_ranks
            }
        for column in range(len(block.mesh.tensor)):
            for pp_rank, *counts in sorted(ranks):
                work = np.tensordot(counts, self._work_parts(block, column, pp_rank), axes=1)
                found = work * block.plans.microbatches
                best = np.where(found.sum(axis=0) > best.sum(axis=0), found, best)
        return best

    def _work_parts(self, block: Block, column: int, pp_rank: int) -> Floats:
        """[UNITS, computing, computing again, tensor collectives; plans] of a micro-batch."""
        shape = (len(UNITS), len(WORKS), 2, len(block.plans))
        mine = self.work(block, column, pp_rank)[:HOST].reshape(shape)
        once = self.work(block, column, pp_rank, again=False)[:HOST].reshape(shape)
        once[:, WORKS.index(Kind.FORWARD)] = mine[:, WORKS.index(Kind.FORWARD)]
        if not whole_backwards(block.shape.schedule):
            mine, once = mine.copy(), once.copy()
            mine[1:, WORKS.index(Kind.BACKWARD)] = once[1:, WORKS.index(Kind.BACKWARD)] = 0
        again = (mine - once).sum(axis=(1, 2))
        return np.stack([once[:, :, COMPUTING].sum(axis=1), again, once[:, :, TENSOR].sum(axis=1)], axis=1)


def estimate(job: Job, cluster: Cluster) -> dict[str, float]:
    """Seconds of a step by PARTS. The job must have passed `rules.check`."""
    space, shape, one = split(job)
    found = Estimator(space, cluster, job.world_size, [shape.tp]).parts([(shape, one)])[0]
    return dict(zip(PARTS, found[:, 0].tolist(), strict=True))
