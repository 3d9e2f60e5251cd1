"""Writes down what one rank does, while it does it. One row an operation; see `engine.recording.tables.Op`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from engine.program.program import Action
from engine.program.streams import COMPUTE_STREAM
from engine.recording.flop_counter import Cost, counting
from engine.recording.tables import Op


@dataclass(slots=True)
class Row:
    """An operation under way; becomes an `Op` when the step is flushed."""

    seq: int
    parent: int
    stream: str
    kind: str
    name: str
    unit: str = ""
    microbatch: int = -1
    stage: int = -1
    op: str = ""
    group: str = ""
    peers: tuple[int, ...] = ()
    start_ns: int = 0
    end_ns: int = 0
    cpu_ns: int = 0
    cost: Cost = field(default_factory=Cost)
    before_flops: int = 0
    logical_bytes: int = 0
    wire_bytes: int = 0
    ref: int = -1

    def as_op(self, step: int, rank: int) -> Op:
        return Op(
            step=step, rank=rank, seq=self.seq, parent=self.parent, stream=self.stream, kind=self.kind,
            name=self.name, unit=self.unit, microbatch=self.microbatch, stage=self.stage, op=self.op,
            group=self.group, peers=self.peers, start_ns=self.start_ns, end_ns=self.end_ns or self.start_ns,
            cpu_ns=self.cpu_ns, flops=self.cost.flops, touched_bytes=self.cost.touched_bytes,
            before_flops=self.before_flops, logical_bytes=self.logical_bytes, wire_bytes=self.wire_bytes, ref=self.ref,
            matmuls=self.cost.matmuls, matmul_bytes=self.cost.matmul_bytes, operators=self.cost.operators,
            batched_flops=self.cost.batched_flops, batched_bytes=self.cost.batched_bytes,
        )  # fmt: skip


class Recorder:
    """The rows of one rank. Costs of a computation are counted the first time and remembered by key."""

    def __init__(self, rank: int, synchronize: Callable[[], None] = lambda: None) -> None:
        """synchronize: waits for the device, so that on a GPU a computation's time is not that of its launch."""
        self.rank, self.synchronize = rank, synchronize
        self.rows: list[Row] = []
        self._open: Row | None = None
        self._costs: dict[tuple[str, ...], Cost] = {}
        self._counter: Cost | None = None
        self._children = 0

    def add(self, stream: str, kind: str, name: str, action: Action | None = None) -> Row:
        """A new row that starts now, inside whatever computation is open."""
        parent = self._open.seq if self._open else -1
        row = Row(len(self.rows), parent, stream, kind, name, start_ns=time.perf_counter_ns())
        if action is not None:
            row.unit = action.unit
            row.microbatch = -1 if action.microbatch is None else action.microbatch
            row.stage = -1 if action.stage is None else action.stage
        elif self._open:
            row.unit, row.microbatch, row.stage = self._open.unit, self._open.microbatch, self._open.stage
        self.rows.append(row)
        return row

    def add_child(self, stream: str, kind: str, name: str) -> Row:
        """A collective inside the open computation; notes how far into it, in FLOPs, it comes."""
        row = self.add(stream, kind, name)
        if self._open:
            if self._counter is not None:
                self._counter.marks.append(self._counter.flops)
            marks = (self._counter or self._open.cost).marks
            row.before_flops = marks[self._children] if self._children < len(marks) else 0
            self._children += 1
        return row

    @contextmanager
    def compute(self, action: Action, key: tuple[str, ...]) -> Iterator[Row]:
        """Times a computation. `key` names what determines its cost: all blocks of a model cost the same."""
        row = self.add(COMPUTE_STREAM, action.kind.name, str(action), action)
        known = self._costs.get(key)
        self._open, self._children = row, 0
        cpu = time.thread_time_ns()
        try:
            if known is None:
                with counting() as counted:
                    self._counter = counted
                    yield row
                row.cost = self._costs[key] = counted
            else:
                row.cost = known
                yield row
        finally:
            self.synchronize()
            row.cpu_ns = time.thread_time_ns() - cpu
            row.end_ns = time.perf_counter_ns()
            self._open, self._counter = None, None

    def flush(self, step: int) -> list[Op]:
        """The rows of a finished step; starts the next one."""
        ops = [row.as_op(step, self.rank) for row in self.rows]
        self.rows = []
        return ops
