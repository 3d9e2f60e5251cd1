"""How long a step would take with many more micro-batches than were replayed, to the picosecond.

A step with more micro-batches begins and ends as one with fewer and does more of what repeats between. So its graph
(see `engine.prediction.replay.timing`) is cut at a moment at which every rank repeats itself, what a round of `lag`
micro-batches brings is laid in between as often as it is left out, and the result is walked as any graph is. Where
the times repeat too, which a max-plus linear system comes to (Baccelli et al. 1992, Synchronization and Linearity,
section 3.7), the rounds left are added at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np

from engine.prediction.replay.rows import Mask, Numbers, StepRows
from engine.prediction.replay.timing import Seconds, graph, walk

_WORDS = ("kind", "unit", "stream", "op")
_REMEMBERED = 128
"""Rounds of which one may be repeated."""


class Repeating:
    """The graph of a replayed step, and which of its rows repeat.

    shape: a number for each row, the same for those of a rank that are alike but for their micro-batch. named: the rows
    of a micro-batch's actions; any other row is found by the one of these that it `follows`, -1 for none. node: the
    row that stands for each node.
    """

    def __init__(self, rows: StepRows, seconds: Seconds) -> None:
        self.rows, self.microbatch = rows, rows.microbatch
        self.shape = _shape(rows, seconds)
        self.is_named = (self.microbatch >= 0) & (rows.parent < 0)
        self.named = np.flatnonzero(self.is_named)
        last = np.maximum.accumulate(np.where(self.is_named, np.arange(len(rows)), -1))
        self.follows = np.where((last >= 0) & (rows.rank[np.maximum(last, 0)] == rows.rank), last, -1)
        marks = self._marks()
        self.graph = graph(rows, marks)
        costs = self.graph.costs(seconds)
        self.gaps, self.close = costs.gaps, costs.close
        self.source = np.array(self.graph.source, np.int64)
        self.time = np.array(walk([0], self.graph.source, self.gaps.tolist(), self.close.tolist()), np.int64)
        self.first = np.append(0, 1 + np.flatnonzero(self.close >= 0))  # edge of node 1, 2, …, and the number of edges
        self.done = self.graph.clocks.done
        self.node = np.zeros(len(self.time), np.int64)
        meet = np.flatnonzero(self.done)[::-1]
        self.node[self.done[meet]] = meet  # of several rows the lowest rank's
        self.reached = self.time[self.graph.clocks.base_node] + costs.passed
        stops = rows.is_blocking | marks
        self.ends = np.append(np.flatnonzero(np.diff(rows.rank)), len(rows) - 1)  # each rank's last row
        its = np.where(stops, self.done, self.graph.clocks.base_node)
        self.end_node = its[self.ends]
        self.end_gap = (np.where(stops, 0, costs.passed) + costs.work)[self.ends]

    def _marks(self) -> Mask:
        """Of each rank one computation of each micro-batch, so that no edge is longer than a round."""
        marks = np.zeros(len(self.rows), bool)
        able = self.is_named & self.rows.is_compute
        for _, mine in self.rows.by_rank():
            shapes, counts = np.unique(self.shape[mine][able[mine]], return_counts=True)
            if len(shapes):
                marks[mine] = able[mine] & (self.shape[mine] == shapes[np.argmax(counts)])
        return marks

    @property
    def picoseconds(self) -> int:
        """Until the last rank is done."""
        return int(max(self.time.max(), (self.time[self.end_node] + self.end_gap).max()))

    def with_more(self, lag: int, rounds: int) -> int | None:
        """The same with `rounds` × `lag` micro-batches more; None if the step repeats nothing after `lag`."""
        after, before = self._neighbours(lag)
        cut = self._cut(after, before)
        if cut is None:
            return None
        round_ = self._round(after, before, cut)
        return None if round_ is None else round_.lengthened(self, rounds)

    def _neighbours(self, lag: int) -> tuple[Numbers, Numbers]:
        """For each row the row that does the same `lag` micro-batches later, and earlier; -1 for none."""
        stride = int(self.microbatch.max(initial=0)) + 1
        key = self.shape[self.named] * stride + self.microbatch[self.named]
        order = np.argsort(key, kind="stable")
        at = np.minimum(np.searchsorted(key[order], key + lag), len(key) - 1)
        there = (key[order][at] == key + lag) & (self.microbatch[self.named] + lag < stride)
        found = np.full(len(self.rows), -1)
        found[self.named] = np.where(there, self.named[order[at]], -1)
        base = found[self.follows] * (self.follows >= 0) - (self.follows < 0)
        after = np.where(base >= 0, base + np.arange(len(base)) - self.follows, -1)
        after[after >= len(after)] = -1
        after[self.shape[after] != self.shape] = -1
        before = np.full(len(after), -1)
        before[after[after >= 0]] = np.flatnonzero(after >= 0)
        return after, before

    def _cut(self, after: Numbers, before: Numbers) -> int | None:
        """A moment at which every rank has begun to repeat itself, and none has ended to; None if there is none."""
        reached = self.reached[self.named]
        if not len(reached):
            return None
        begun = int(reached[before[self.named] < 0].max())  # of the first ones
        ended = int(reached[after[self.named] < 0].min())  # of the last ones
        return (begun + ended) // 2 + 1 if ended > begun + 1 else None

    def _round(self, after: Numbers, before: Numbers, cut: int) -> _Round | None:
        """What comes again, up to `cut`; None if it does not come again in every respect."""
        early = self.time < cut
        follows = np.where(after[self.node] >= 0, self.done[after[self.node]], 0)
        follows[0] = 0
        last = np.flatnonzero(early & (follows > 0) & ~early[follows])
        if not len(last) or not self._is_whole(after, before, cut, last) or not self._alike(last, follows):
            return None
        number, depth = self._places(early, follows, last)
        return _Round(early, last, number, depth)

    def _is_whole(self, after: Numbers, before: Numbers, cut: int, last: Numbers) -> bool:
        """Whether each rank's rows before the cut are twice the same as those behind it, and `last` are their nodes."""
        nodes: set[int] = set()
        for _, mine in self.rows.by_rank():
            rows = np.arange(mine.start, mine.stop)
            behind = rows[self.is_named[mine] & self.rows.is_compute[mine] & (self.reached[mine] >= cut)]
            end = int(behind[0]) if len(behind) else -1
            size = end - int(before[end])
            block = np.arange(end - 2 * size, end)
            if end < 0 or before[end] < 0 or block[0] < mine.start or (after[block] != block + size).any():
                return False
            block = block[size:]
            node = self.done[block]
            late = (node > 0) & (self.time[node] >= cut)
            node = np.where(late, self.done[block - size], node)
            nodes.update(node[node > 0].tolist())
        return nodes == set(last.tolist())

    def _alike(self, last: Numbers, follows: Numbers) -> bool:
        """Whether the nodes that follow on `last` wait for what follows on their sources, as long after these."""
        mine, then = (self._edges(nodes) for nodes in (last, follows[last]))
        if len(mine) != len(then):
            return False
        same = follows[self.source[mine]] == self.source[then]
        for part in (self.gaps, self.close):
            same &= part[mine] == part[then]
        return bool(same.all())

    def _edges(self, nodes: Numbers) -> Numbers:
        """The edges that lead to the nodes, one node's after the other's."""
        begins, sizes = self.first[nodes - 1], self.first[nodes] - self.first[nodes - 1]
        return np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())

    def _places(self, early: Mask, follows: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
        """For each node before the cut: which of `last` comes of it, and after how many rounds; -1 for none."""
        here = np.arange(len(early))
        ends = np.isin(here, last) | ~early | (follows == 0)
        to, depth = np.where(ends, here, follows), np.where(ends, 0, 1)
        while (to != to[to]).any():
            depth, to = depth + depth[to], to[to]
        number = np.full(len(early), -1)
        number[last] = np.arange(len(last))
        return np.where(early, number[to], -1), depth


@dataclass(frozen=True, eq=False)
class _Round:
    """What repeats before a cut. early: the nodes before it; last: those of its last round; number, depth: of each
    node before the cut, which of `last` follows on it after how many rounds, -1 for none."""

    early: Mask
    last: Numbers
    number: Numbers
    depth: Numbers

    def lengthened(self, of: Repeating, rounds: int) -> int | None:
        """When the last rank is done with so many rounds more; None if something waits for what does not repeat."""
        late = np.flatnonzero(~self.early)
        size, inner, outer = len(self.last), of._edges(self.last), of._edges(late)
        tail = of.end_node
        used = np.concatenate([of.source[inner], of.source[outer], tail])
        used = used[self.early[used]]
        if (self.number[used] < 0).any():
            return None
        back = int(self.depth[used].max(initial=0))
        window = np.zeros((back + 1) * size, np.int64)
        kept = np.flatnonzero((self.number >= 0) & (self.depth <= back))
        window[(back - self.depth[kept]) * size + self.number[kept]] = of.time[kept]
        place = (back - self.depth) * size + self.number  # in the window
        steps = (place[of.source[inner]] + size, of.gaps[inner], of.close[inner])
        times = _after_rounds(window.tolist(), size, rounds, *(part.tolist() for part in steps))
        at = np.zeros(len(self.early), np.int64)
        at[late] = len(times) + np.arange(len(late))
        at = np.where(self.early, place, at)
        times = walk(times, at[of.source[outer]].tolist(), of.gaps[outer].tolist(), of.close[outer].tolist())
        ends = [times[node] + gap for node, gap in zip(at[tail].tolist(), of.end_gap.tolist(), strict=True)]
        return int(max(*times, *ends))


def _after_rounds(
    window: list[int], size: int, rounds: int, source: list[int], gaps: list[int], close: list[int]
) -> list[int]:
    """The times of the last rounds, `size` nodes each, once so many more have been walked.

    source: place of each edge's source in the window, to which the round that is walked is added.
    """
    seen: dict[tuple[int, ...], tuple[int, int]] = {}
    for done in count():
        if done == rounds:
            return window
        state = tuple(time - window[-1] for time in window)
        if state in seen:
            before, then = seen[state]
            whole, rest = divmod(rounds - done, done - before)
            later = (window[-1] - then) * whole
            return _after_rounds([time + later for time in window], size, rest, source, gaps, close)
        seen[state] = done, window[-1]
        if len(seen) > _REMEMBERED:
            del seen[next(iter(seen))]
        window = walk(window, source, gaps, close)[size:]
    raise AssertionError("unreachable")


def _shape(rows: StepRows, seconds: Seconds) -> Numbers:
    """See `Repeating`."""
    parts = [rows.rank, rows.stage, (rows.microbatch >= 0).astype(np.int64), *(rows.codes(name)[0] for name in _WORDS)]
    for cost in (seconds.own, seconds.together, np.broadcast_to(seconds.host, len(rows))):
        parts.append(np.unique(cost, return_inverse=True)[1])
    shape = np.zeros(len(rows), np.int64)
    for part in parts:
        shape = np.unique(shape * (int(part.max(initial=0)) + 2) + part + 1, return_inverse=True)[1]
    return shape
