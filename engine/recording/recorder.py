"""Writes down what one rank does, while it does it. One row an operation; see `engine.recording.tables.Op`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.program.program import Action
from engine.program.streams import COMPUTE_STREAM
from engine.recording.flop_counter import Counted, counting
from engine.recording.tables import Op


class Recorder:
    """The rows of one rank. Costs of a computation are counted the first time and remembered by key."""

    def __init__(self, rank: int, synchronize: Callable[[], None] = lambda: None, clock_offset_ns: int = 0) -> None:
        """synchronize: waits for the device, so that on a GPU a computation's time is not that of its launch.

        clock_offset_ns: added to all times once their step is over, so that ranks of several machines have one clock.
        """
        self.rank, self.synchronize, self._offset = rank, synchronize, clock_offset_ns
        self.rows: list[Op] = []
        self._open: Op | None = None
        self._costs: dict[tuple[str, ...], Counted] = {}
        self._marks: list[int] = []  # of the open computation, see `Counted`
        self._children = 0
        self._counter: Counted | None = None

    def add(self, stream: str, kind: str, name: str, action: Action | None = None) -> Op:
        """A new row that starts now, inside whatever computation is open."""
        parent = self._open.seq if self._open else -1
        start = time.perf_counter_ns()
        row = Op(rank=self.rank, seq=len(self.rows), parent=parent, stream=stream, kind=kind, name=name, start_ns=start)
        if action is not None:
            row.unit = action.unit
            row.microbatch = -1 if action.microbatch is None else action.microbatch
            row.stage = -1 if action.stage is None else action.stage
        elif self._open:
            row.unit, row.microbatch, row.stage = self._open.unit, self._open.microbatch, self._open.stage
        self.rows.append(row)
        return row

    def add_child(self, stream: str, kind: str, name: str) -> Op:
        """A collective inside the open computation; notes how far into it, in FLOPs, it comes."""
        row = self.add(stream, kind, name)
        if self._open:
            if self._counter is not None:
                self._marks.append(self._counter.cost.flops)
            row.cost.before_flops = self._marks[self._children] if self._children < len(self._marks) else 0
            self._children += 1
        return row

    @contextmanager
    def compute(self, action: Action, key: tuple[str, ...]) -> Iterator[Op]:
        """Times a computation. `key` names what determines its cost: all blocks of a model cost the same."""
        row = self.add(COMPUTE_STREAM, action.kind.name, str(action), action)
        known = self._costs.get(key)
        self._open, self._children = row, 0
        cpu = time.thread_time_ns()
        try:
            if known is None:
                with counting() as counted:
                    self._counter, self._marks = counted, counted.marks
                    yield row
                self._costs[key] = counted
                row.cost = counted.cost
            else:
                row.cost, self._marks = known.cost, known.marks
                yield row
        finally:
            self.synchronize()
            row.cpu_ns = time.thread_time_ns() - cpu
            row.end_ns = time.perf_counter_ns()
            self._open, self._counter = None, None

    def flush(self, step: int) -> list[Op]:
        """The rows of a finished step; starts the next one."""
        ops, self.rows = self.rows, []
        for op in ops:
            op.step, op.end_ns = step, (op.end_ns or op.start_ns) + self._offset
            op.start_ns += self._offset
        return ops
