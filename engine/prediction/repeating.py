"""Where in a replayed step does a pipeline do the same again and again, and how much later each time?

A step with more micro-batches begins and ends as one with fewer and does more of what repeats between. When each row
happens is a longest path, so once everything comes exactly `seconds` later than it did `lag` micro-batches before, it
goes on so: a row's time is the latest of its sources' plus a fixed cost, and all of them are that much later too (the
cycle time of a max-plus linear system; Baccelli et al. 1992, Synchronization and Linearity, section 3.7). This holds
if three things do, which are looked at here row by row:

- in some window of time each row has a row of the same costs `lag` micro-batches on, exactly so much later;
- what comes after the window waits for nothing that came before it, and repeats nothing from before it;
- before the window no rank has come to its last `lag` micro-batches, and after it none is still to do the first ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.prediction.replay.rows import Mask, Numbers, StepRows
from engine.prediction.replay.timing import Graph, Seconds, Times

_WORDS = ("kind", "unit", "stream", "op")


@dataclass(frozen=True)
class Repeat:
    """Every `lag` micro-batches everything comes `later` picoseconds later."""

    lag: int
    later: int


class Repeats:
    """The rows of a replayed step and what each of them is, to look for a repetition among them."""

    def __init__(self, known: Graph, seconds: Seconds, times: Times) -> None:
        rows = known.rows
        self.rows, self.meetings, self.times = rows, known.meetings, times
        self.shape = _shape(rows, seconds)
        self.microbatch = rows.microbatch
        here = np.arange(len(rows))
        self.named = np.flatnonzero((self.microbatch >= 0) & (rows.parent < 0))
        """Rows of actions of a micro-batch; any other row is found by the one of these that it follows."""
        is_named = np.zeros(len(rows), bool)
        is_named[self.named] = True
        last = np.maximum.accumulate(np.where(is_named, here, -1))
        self.follows = np.where((last >= 0) & (rows.rank[np.maximum(last, 0)] == rows.rank), last, -1)
        self.stride = int(self.microbatch.max(initial=0)) + 1
        self.meets = self.meetings.of_row >= 0
        self.ends = self.meets | rows.is_wait  # whose end others wait for
        self.sources = self._edges()

    def _edges(self) -> tuple[Numbers, Numbers]:
        """(when the source was, when its target) of everything that waits for something: rows for the row before."""
        reached, end, rows = self.times.reached, self.times.end, self.rows
        after = np.flatnonzero(~rows.first)
        own = np.flatnonzero(self.ends)
        waits = np.flatnonzero(rows.is_wait & (rows.ref >= 0))
        queued = np.flatnonzero(self.meetings.previous >= 0)
        ahead = end[self.meetings.first[self.meetings.previous[queued]]]
        sources = [reached[after - 1], reached[own], end[rows.ref[waits]], ahead]
        targets = [reached[after], end[own], end[waits], end[queued]]
        return np.concatenate(sources), np.concatenate(targets)

    def every(self, lag: int) -> Repeat | None:
        """Whether everything repeats after `lag` micro-batches; None if that is not certain."""
        after = self._after(lag)
        has = np.flatnonzero(after >= 0)
        if not len(has):
            return None
        reached, end = self.times.reached, self.times.end
        later = _most_frequent(reached[after[has]] - reached[has])
        right = np.zeros(len(after), bool)
        right[has] = self._alike(has, after) & (reached[after[has]] - reached[has] == later)
        right[has] &= ~self.ends[has] | (end[after[has]] - end[has] == later)
        begin, over = self._window(right)
        source, target = (np.append(ends, reached[rows]) for ends, rows in zip(self.sources, (has, after[has]), strict=True))
        if later <= 0 or ((source <= begin) & (target >= over)).any() or not self._between(begin, over, lag):
            return None
        return Repeat(lag, later)

    def _after(self, lag: int) -> Numbers:
        """For each row the row that does the same `lag` micro-batches later; -1 for none."""
        key = self.shape[self.named] * self.stride + self.microbatch[self.named]
        order = np.argsort(key, kind="stable")
        keys = key[order]
        at = np.minimum(np.searchsorted(keys, key + lag), len(keys) - 1)
        there = (keys[at] == key + lag) & (self.microbatch[self.named] + lag < self.stride)
        found = np.full(len(self.rows), -1)
        found[self.named] = np.where(there, self.named[order[at]], -1)
        base = np.where(self.follows >= 0, found[np.maximum(self.follows, 0)], -1)
        after = np.where(base >= 0, base + np.arange(len(base)) - self.follows, -1)
        inside = (after >= 0) & (after < len(after))
        after = np.where(inside, after, -1)
        return np.where(inside & (self.shape[after] == self.shape), after, -1)

    def _alike(self, has: Numbers, after: Numbers) -> Mask:
        """Whether each row that `has` one `after` it waits for what is as far before that one."""
        rows, then = self.rows, after[has]
        ref, of_row, previous = rows.ref, self.meetings.of_row, self.meetings.previous
        same = np.asarray(_moved(ref, after)[has] == ref[then])
        first = self.meetings.first
        for met in (of_row, previous):
            example = np.where(met >= 0, first[met], -1)
            same &= _moved(example, after)[has] == example[then]
        return same

    def _window(self, right: Mask) -> tuple[int, int]:
        """The longest time between two moments at which a row is not right."""
        wrong = np.unique(np.concatenate([self.times.reached[~right], self.times.end[~right & self.ends]]))
        if len(wrong) < 2:
            return 0, 0
        widest = int(np.argmax(np.diff(wrong)))
        return int(wrong[widest]), int(wrong[widest + 1])

    def _between(self, begin: int, over: int, lag: int) -> bool:
        """Whether the first `lag` micro-batches are begun before the window, and the last ones ended after it."""
        reached, microbatch = self.times.reached[self.named], self.microbatch[self.named]
        first, last = microbatch < lag, microbatch >= self.stride - lag
        return bool((reached[first] < over).all() and (reached[last] > begin).all())


def _shape(rows: StepRows, seconds: Seconds) -> Numbers:
    """A number for each row, the same for those of one rank that are alike but for their micro-batch."""
    parts = [rows.rank, rows.stage, (rows.microbatch >= 0).astype(np.int64), *(rows.codes(name)[0] for name in _WORDS)]
    for cost in (seconds.own, seconds.together, np.broadcast_to(seconds.host, len(rows))):
        parts.append(np.unique(cost, return_inverse=True)[1])
    shape = np.zeros(len(rows), np.int64)
    for part in parts:
        shape = np.unique(shape * (int(part.max(initial=0)) + 2) + part + 1, return_inverse=True)[1]
    return shape


def _moved(source: Numbers, after: Numbers) -> Numbers:
    """The row after each source; -1 where there is no source."""
    return np.where(source >= 0, after[np.maximum(source, 0)], -1)


def _most_frequent(values: Numbers) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])
