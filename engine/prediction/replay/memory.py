"""Memory in a replay: every change keeps its place among the operations of its rank and gets that place's new time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engine.prediction.replay.rows import Numbers, StepRows, whole
from engine.recording.tables import CATEGORIES


@dataclass(frozen=True, eq=False)
class Anchored:
    """Memory rows and the event each follows: the reaching of an operation, or its end (`count` further on).

    before: rows that held when the step began, in their order. rows: those of the step, sorted by rank and time; for
    each of them, event: the number of the event it follows, -1 if it comes before all of its rank; instant: a number
    for its rank and time.
    """

    before: pa.Table
    rows: pa.Table
    event: Numbers
    instant: Numbers

    def at(self, reached: Numbers, end: Numbers) -> pa.Table:
        """The memory table at new times in ns, those of each row; what held before gets time -1.

        Changes that followed one another stay apart, by a nanosecond where no time passes between their events, for
        changes of one instant count as one and a peak between them would be lost.
        """
        times = np.append(np.concatenate([reached, end]), 0)[self.event]
        ranks = np.asarray(self.rows["rank"].to_numpy(), np.int64) * (int(times.max(initial=0)) + len(times) + 1)
        times = np.maximum.accumulate(times + ranks - self.instant) + self.instant - ranks
        held = _with(self.before, "time_ns", np.full(self.before.num_rows, -1))
        return pa.concat_tables([held, _with(self.rows, "time_ns", times)])


def anchored(memory: pa.Table, rows: StepRows, step: int) -> Anchored:
    """Ties the memory rows of `step` to the operations that they follow on the recording's clock."""
    steps = np.asarray(memory["step"].to_numpy(), np.int64)
    mine = memory.take(whole(np.flatnonzero(steps == step)))
    its_rank, its_time = (np.asarray(mine[name].to_numpy(), np.int64) for name in ("rank", "time_ns"))
    order = np.lexsort((its_time, its_rank))
    mine, its_rank, its_time = mine.take(whole(order)), its_rank[order], its_time[order]
    on_main = np.flatnonzero(rows.is_compute | rows.is_blocking)  # these end where the rank goes on
    event = np.concatenate([np.arange(len(rows)), len(rows) + on_main])
    rank = np.concatenate([rows.rank, rows.rank[on_main]])
    time = np.concatenate([rows.start, rows.end[on_main]])
    order = np.lexsort((time, rank))
    event, rank, time = event[order], rank[order], time[order]
    origin = int(min(time.min(), its_time.min(initial=time.min())))
    span = int(max(time.max(), its_time.max(initial=0))) - origin + 1
    at = np.searchsorted(rank * span + time - origin, its_rank * span + its_time - origin, side="right") - 1
    found = np.where((at >= 0) & (rank[np.maximum(at, 0)] == its_rank), event[np.maximum(at, 0)], -1)
    instant = np.cumsum((np.diff(its_rank, prepend=-1) != 0) | (np.diff(its_time, prepend=-1) != 0))
    return Anchored(_held_before(memory, steps, step), mine, found, instant)


def _held_before(memory: pa.Table, steps: Numbers, step: int) -> pa.Table:
    """The set-up, and of the steps before this one the last word on each rank's categories, as part of the set-up."""
    rank, category = memory["rank"].to_numpy(), memory["category"].to_numpy(zero_copy_only=False)
    known = {name: number for number, name in enumerate(CATEGORIES)}
    key = rank * len(known) + np.array([known[name] for name in category], np.int64)
    earlier = np.flatnonzero((steps >= 0) & (steps < step))
    _, from_end = np.unique(key[earlier][::-1], return_index=True)
    last = np.sort(earlier[len(earlier) - 1 - from_end])
    held = memory.take(whole(np.concatenate([np.flatnonzero(steps < 0), last])))
    return _with(held, "step", np.full(held.num_rows, -1))


def _with(rows: pa.Table, name: str, values: Numbers) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), whole(values))
