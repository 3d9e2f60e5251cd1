"""The recording: what each rank really did, in order, as plain tables. The names here are the names in the files.

A row class says each column once: its name, type, meaning. `engine.recording.columns` makes the tables from it,
`engine.recording.live_files` has the files of a run that goes on, `engine.recording.parquet` those of one that has
ended.

To add a column, add a field with a default to a row class and one to `engine.recording.columns.VERSION`: tables
written before are filled with the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import pyarrow as pa


@dataclass(slots=True)
class OpCost:
    """What an operation costs its rank, whatever the clock: FLOPs and bytes, or counts of operators.

    flops, touched_bytes: of the operators executed, children excluded; operands read plus results written, views
    excluded. before_flops: for a child, how many FLOPs of its parent came before it. logical_bytes: what the algorithm
    moves per rank; wire_bytes: what the backend moves. matmuls, matmul_bytes: how many of the operators are matrix
    products, those that have a FLOP formula, and the bytes those touch. operators: all that compute or move anything.
    batched_flops, batched_bytes: of the products, attention's, which multiply many small matrices.
    """

    flops: int = 0
    touched_bytes: int = 0
    before_flops: int = 0
    logical_bytes: int = 0
    wire_bytes: int = 0
    matmuls: int = 0
    matmul_bytes: int = 0
    operators: int = 0
    batched_flops: int = 0
    batched_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class Op:
    """One operation of one rank. Times are ns of one clock for all ranks of a machine; -1 means "does not apply".

    The recorder fills one in while the operation goes on; once its step is flushed, nothing of it changes.

    seq: position in the rank's step; parent: seq of the action this happened inside, such as an all-reduce in a layer.
    stream: "compute", or the communication stream: "dp", "tp", "tie", "world", "pp_act", "pp_grad".
    kind: an action kind of `engine.program.program.Kind`, or "collective" for a child operation, or "wait".
    name: for people, e.g. "forward block3 mb0" or "all_reduce"; op: the collective or "message", else "".
    group: mesh axis of the communication; peers: the ranks that take part.
    cpu_ns: processor time of the rank's main thread in between, so that waiting for a core can be told from working.
    ref: for a wait, seq of the operation waited for. cost: a column for each of its fields.
    """

    step: int = 0
    rank: int = 0
    seq: int
    parent: int = -1
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
    ref: int = -1
    cost: OpCost = field(default_factory=OpCost)


class MemoryRow(NamedTuple):
    """From `time_ns` on, `category` holds `bytes` on `rank`. step -1 is the set-up before the first step."""

    step: int
    rank: int
    time_ns: int
    category: str
    bytes: int


class MetricRow(NamedTuple):
    """One optimizer step of the whole job; `reference_loss` is the one-process run's, NaN without parity."""

    step: int
    loss: float
    grad_norm: float
    seconds: float
    tokens_per_second: float
    reference_loss: float


TABLES = ("ops", "memory", "metrics")
CATEGORY_WORDS = {
    "params": "parameters", "grads": "gradients", "optimizer": "optimizer state", "activations": "activations",
    "gathered": "gathered parameters", "buffers": "buffers",
}  # fmt: skip
"""What a rank's memory is divided into, in words."""
CATEGORIES = tuple(CATEGORY_WORDS)


class Recording:
    """The three tables of a run. Nothing of them changes, so what is found out about one can be kept with it.

    `Recorded` has them at hand; others read them when they are asked for. stands_for: where only some ranks are
    recorded, for each rank of the job the recorded one that does what it does.
    """

    ops: pa.Table
    memory: pa.Table
    metrics: pa.Table
    stands_for: Mapping[int, int]

    def ops_of(self, step: int) -> pa.Table:
        """The operations of one step."""
        return of_step(self.ops, step)

    def ops_batches(self, columns: list[str]) -> Iterator[pa.Table]:
        """The columns asked for, some steps at a time, each step in one piece."""
        yield self.ops.select(columns)

    def memory_batches(self) -> Iterator[pa.Table]:
        """The memory table in pieces, in the order of steps."""
        yield self.memory

    def op_rows(self) -> Iterator[Op]:
        """Every row of `ops` as an object, in the order of the table."""
        for row in self.ops.to_pylist():
            yield op_from(row)


@dataclass(frozen=True, eq=False)
class Recorded(Recording):
    """A recording whose tables are at hand."""

    ops: pa.Table
    memory: pa.Table
    metrics: pa.Table
    stands_for: Mapping[int, int] = field(default_factory=dict)


def op_from(row: Mapping[str, Any]) -> Op:
    """An operation from its columns, those that were plugged in left out."""
    cost = OpCost(**{one.name: row[one.name] for one in fields(OpCost) if one.name in row})
    return Op(**{one.name: row[one.name] for one in fields(Op) if one.name in row}, cost=cost)


def metric_from(row: Mapping[str, Any]) -> MetricRow:
    """A row of the metrics from its columns, those that were plugged in left out."""
    return MetricRow(**{name: row[name] for name in MetricRow._fields})


def of_step(ops: pa.Table, step: int) -> pa.Table:
    """The rows of one step."""
    import pyarrow.compute as pc  # a rank, which only writes, is spared its 0.15 s

    mine = pc.equal(ops["step"], step)
    return ops if pc.all(mine).as_py() else ops.filter(mine)
