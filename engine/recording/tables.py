"""The recording: what each rank really did, in order, as plain tables. The names here are the names in the files.

`engine.recording.live_files` has the files of a run that goes on, `engine.recording.parquet` those of one that has
ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc


class Op(NamedTuple):
    """One operation of one rank. Times are ns of one clock for all ranks of a machine; -1 means "does not apply".

    seq: position in the rank's step; parent: seq of the action this happened inside, such as an all-reduce in a layer.
    stream: "compute", or the communication stream: "dp", "tp", "tie", "world", "pp_act", "pp_grad".
    kind: an action kind of `engine.program.program.Kind`, or "collective" for a child operation, or "wait".
    name: for people, e.g. "forward block3 mb0" or "all_reduce"; op: the collective or "message", else "".
    group: mesh axis of the communication; peers: the ranks that take part.
    cpu_ns: processor time of the rank's main thread in between, so that waiting for a core can be told from working.
    flops, touched_bytes: of the operators executed, children excluded. before_flops: for a child, how many FLOPs of its
    parent came before it. matmuls, matmul_bytes, operators: how many of the operators are matrix products, the bytes
    those touch, and how many operators there are in all. batched_flops, batched_bytes: of those products, attention's.
    logical_bytes: what the algorithm moves per rank; wire_bytes: what the backend moves.
    ref: for a wait, seq of the operation waited for.
    """

    step: int
    rank: int
    seq: int
    parent: int
    stream: str
    kind: str
    name: str
    unit: str
    microbatch: int
    stage: int
    op: str
    group: str
    peers: tuple[int, ...]
    start_ns: int
    end_ns: int
    cpu_ns: int
    flops: int
    touched_bytes: int
    before_flops: int
    logical_bytes: int
    wire_bytes: int
    ref: int
    matmuls: int = 0
    matmul_bytes: int = 0
    operators: int = 0
    batched_flops: int = 0
    batched_bytes: int = 0


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
CATEGORIES = ("params", "grads", "optimizer", "activations", "gathered", "buffers")

_TYPES = {int: pa.int64(), str: pa.string(), float: pa.float64(), tuple[int, ...]: pa.list_(pa.int32())}


def _schema(row: Any) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in get_type_hints(row).items()])


OPS_SCHEMA, MEMORY_SCHEMA, METRICS_SCHEMA = _schema(Op), _schema(MemoryRow), _schema(MetricRow)
SCHEMAS = dict(zip(TABLES, (OPS_SCHEMA, MEMORY_SCHEMA, METRICS_SCHEMA), strict=True))


@dataclass(frozen=True, eq=False)
class Recording:
    """The three tables of a run. Nothing of them changes, so what is found out about one can be kept with it.

    stands_for: where only some ranks are recorded, for each rank of the job the recorded one that does what it does.
    """

    ops: pa.Table
    memory: pa.Table
    metrics: pa.Table
    stands_for: Mapping[int, int] = field(default_factory=dict)

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
        for row in self.ops.to_pylist():
            yield Op(**row)


def of_step(ops: pa.Table, step: int) -> pa.Table:
    """The rows of one step."""
    mine = pc.equal(ops["step"], step)
    return ops if pc.all(mine).as_py() else ops.filter(mine)


def table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    """Rows (named tuples or lists in column order) as an Arrow table."""
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
