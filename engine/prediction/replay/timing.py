"""When does each row of a step start and end, given what everything costs? A longest path through what waits for what.

A rank's rows follow one another; only two kinds of instants depend on other ranks: the end of a communication, and
the end of a wait for one. These are the nodes of a graph whose edges say "not before this one and so much computing".
The graph depends on the recording alone, so it is made once and walked again for every change of costs. All times
inside are whole picoseconds: sums are exact, so nothing depends on the order in which they are made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.prediction.replay.rendezvous import Meetings, meetings
from engine.prediction.replay.rows import Mask, Numbers, StepRows

PS = 1e12  # picoseconds in a second


@dataclass(frozen=True)
class Seconds:
    """What the rows of a step cost. own: of a computation, its child collectives excluded; unused for other rows.

    together: of a communication, from when all its members are there; the row of its lowest rank counts. host: from
    each row to the next of its rank, all that happens inside an action belonging to it; one number for all will do.
    """

    own: NDArray[np.float64]
    together: NDArray[np.float64]
    host: NDArray[np.float64] | float = 0.0


@dataclass(frozen=True)
class Times:
    """Picoseconds from the beginning of the step, for each row.

    reached: when the rank gets to the row. start: the same or, for communication, when what comes before it on its
    stream is over, if that is later.
    """

    reached: Numbers
    start: Numbers
    end: Numbers


@dataclass(frozen=True, eq=False)
class Clocks:
    """How far each rank has got before each row: `base_node` plus the computing from row `base` to this row.

    base: the last row before this one that blocked, or else the rank's first row. base_node: the node at which that
    was over, or else 0, the beginning of the step. done: the node at which a communication or wait is over; 0 for
    computations.
    """

    base: Numbers
    base_node: Numbers
    done: Numbers


@dataclass(frozen=True, eq=False)
class EdgeCosts:
    """Picoseconds of a graph. Of each row, work: computing that follows on it; passed: from its `Clocks.base` to it.

    Of each edge, gaps: how long after its source; close: what its node itself adds if this is its last edge, or −1.
    """

    work: Numbers
    passed: Numbers
    gaps: Numbers
    close: Numbers


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes are numbered so that each comes after all it waits for; the edges are sorted by where they lead.

    For each edge, source: the node it comes from; row: the row whose clock it is, -1 for a node alone; closes: the
    meeting that is complete with this edge (their number for a wait), -1 if its node has more edges.
    """

    rows: StepRows
    meetings: Meetings
    clocks: Clocks
    source: list[int]
    row: Numbers
    closes: Numbers

    def times(self, seconds: Seconds) -> Times:
        """The times of every row at these costs."""
        costs = self.costs(seconds)
        node = np.array(walk([0], self.source, costs.gaps.tolist(), costs.close.tolist()), np.int64)
        reached = node[self.clocks.base_node] + costs.passed
        return self._times(reached, node[self.clocks.done], costs.work)

    def costs(self, seconds: Seconds) -> EdgeCosts:
        """The same costs, as they lie on the edges."""
        work = _work(self.rows, _whole(seconds.own))
        with_host = work + _host(self.rows, _whole(np.broadcast_to(seconds.host, len(work))))
        before = np.cumsum(with_host) - with_host
        passed = before - before[self.clocks.base]
        cost = np.append(_whole(seconds.together)[self.meetings.first], 0)  # a wait adds nothing
        close = np.where(self.closes < 0, -1, cost[self.closes])
        return EdgeCosts(work, passed, np.where(self.row < 0, 0, passed[self.row]), close)

    def _times(self, reached: Numbers, over: Numbers, work: Numbers) -> Times:
        rows, together = self.rows, self.meetings
        behind = np.flatnonzero(together.previous >= 0)
        start = reached.copy()
        start[behind] = np.maximum(reached[behind], over[together.first[together.previous[behind]]])
        passes = np.where(rows.is_blocking, over, reached) + work
        end = np.where(self.clocks.done > 0, over, passes[last_inside(rows)])
        return Times(reached, start, end)


def _whole(seconds: NDArray[np.float64]) -> Numbers:
    return np.rint(np.asarray(seconds, np.float64) * PS).astype(np.int64)


def walk(time: list[int], source: list[int], gaps: list[int], close: list[int]) -> list[int]:
    """`time` with that of each node after those it has already: the latest of the node's edges plus its own cost."""
    latest, append = 0, time.append
    for node, gap, cost in zip(source, gaps, close, strict=True):
        there = time[node] + gap
        if there > latest:
            latest = there
        if cost >= 0:
            append(latest + cost)
            latest = 0
    return time


def last_inside(rows: StepRows) -> Numbers:
    """For each row the last row that happens inside it; itself if none does."""
    last = np.arange(len(rows))
    inside = np.flatnonzero(rows.parent >= 0)
    last[rows.parent[inside]] = inside  # of several the last stays
    return last


def _work(rows: StepRows, own: Numbers) -> Numbers:
    """Computing that follows on each row before the next: an action's own cost, cut where its collectives come."""
    work = np.where(rows.is_compute, own, 0)
    inside = np.flatnonzero(rows.parent >= 0)
    parent = rows.parent[inside]
    at = np.rint(own[parent] * rows.fraction[inside]).astype(np.int64)
    until = np.where(np.diff(parent, append=-1) == 0, np.append(at[1:], 0), own[parent])
    opens = np.diff(parent, prepend=-1) != 0
    work[parent[opens]] = at[opens]
    work[inside] = until - at
    assert (work[inside] >= 0).all(), "the collectives inside an action are recorded in their order"
    return work


def _host(rows: StepRows, seconds: Numbers) -> Numbers:
    """The host's time after each row: after an action once the last of what happens inside it is over."""
    own = np.flatnonzero(rows.parent < 0)
    host = np.zeros(len(rows), np.int64)
    host[last_inside(rows)[own]] = seconds[own]
    return host


def graph(rows: StepRows, marks: Mask | None = None) -> Graph:
    """Finds what waits for what. Raises `ValueError` naming an action that could never go on.

    marks: computations that are nodes too: the instants at which they are reached. `Graph.times` is for graphs without.
    """
    together = meetings(rows)
    stops = rows.is_wait if marks is None else rows.is_wait | marks
    blocking, waits = rows.is_blocking | stops, np.flatnonzero(stops)
    node = together.of_row.copy()  # numbered as they come, -1 for none
    node[waits] = len(together) + np.arange(len(waits))
    base = _base(rows, blocking)
    base_node = np.where(blocking[base] & (base < np.arange(len(rows))), node[base], -1)
    mine = np.flatnonzero(node >= 0)
    queued = np.flatnonzero(together.previous >= 0)
    queued = queued[~blocking[together.first[together.previous[queued]]]]  # else the rank's own clock says it
    pairs = np.unique(np.stack([together.of_row[queued], together.previous[queued]], 1), axis=0)
    awaited = waits[(rows.ref[waits] >= 0) & (node[rows.ref[waits]] >= 0)]
    target = np.concatenate([node[mine], pairs[:, 0], node[awaited]])
    source = np.concatenate([base_node[mine], pairs[:, 1], node[rows.ref[awaited]]])
    row = np.concatenate([mine, np.full(len(target) - len(mine), -1)])
    place = _order(target, source, len(together) + len(waits))
    if (place == 0).any():
        _refuse(rows, together, base_node, node, place)
    place = np.append(place, 0)  # so that node -1 is the beginning
    by_target = np.argsort(place[target], kind="stable")
    reached = target[by_target]
    closes = np.where(np.diff(reached, append=-1) != 0, np.minimum(reached, len(together)), -1)
    clocks = Clocks(base, place[base_node], place[node])
    return Graph(rows, together, clocks, place[source[by_target]].tolist(), row[by_target], closes)


def _base(rows: StepRows, blocking: Mask) -> Numbers:
    """See `Clocks.base`."""
    here = np.arange(len(rows))
    first = np.maximum.accumulate(np.where(rows.first, here, 0))
    blocked = np.maximum.accumulate(np.where(blocking, here, 0))
    return np.maximum(first, np.where(rows.first, here, np.roll(blocked, 1)))


def _order(target: Numbers, source: Numbers, count: int) -> Numbers:
    """The place of each node, from 1, in an order in which it comes after its sources; 0 for those that never come."""
    by_source = np.argsort(source, kind="stable")
    leads_to = target[by_source].tolist()
    begins = np.searchsorted(source[by_source], np.arange(-1, count + 1)).tolist()
    missing = np.bincount(target, minlength=count).tolist()
    place, placed = [0] * count, 0
    ready = deque([-1])
    while ready:
        node = ready.popleft()
        if node >= 0:
            placed += 1
            place[node] = placed
        for after in leads_to[begins[node + 1] : begins[node + 2]]:
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    return np.array(place, np.int64)


def _refuse(rows: StepRows, together: Meetings, base_node: Numbers, node: Numbers, place: Numbers) -> None:
    """Raises the deadlock: the first rank that cannot go on, and whom it waits for."""
    comes = np.append(place, 1) > 0
    stuck = int(np.flatnonzero(rows.is_blocking & comes[base_node] & ~comes[node])[0])
    waited = int(rows.ref[stuck]) if rows.is_wait[stuck] else stuck
    members = together.members(int(together.of_row[waited]))
    late = next((m for m in members if not comes[base_node[m]]), waited)
    where = f"rank {rows.rank[stuck]} is stuck in {rows.name[stuck]}"
    if rows.parent[stuck] >= 0:
        where += f" of {rows.name[rows.parent[stuck]]}"
    waits_for = f"rank {rows.rank[late]} to get to {rows.name[late]}"
    if late == waited:
        waits_for = f"{rows.name[waited]}, which is behind a message or collective that never begins"
    raise ValueError(f"this step would never end: {where}, waiting for {waits_for}.")
