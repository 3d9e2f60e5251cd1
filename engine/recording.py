"""The recording: what each rank really did, in order, as plain tables. The names here are the names in the files.

A run's folder holds, while the run goes on, `live/rank003.jsonl` (one line a step and rank) and, once it has ended, the
Parquet tables `ops`, `memory` and `metrics`. Reading falls back on the live files, so a killed run stays readable.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq


class Op(NamedTuple):
    """One operation of one rank. Times are ns of one clock for all ranks of a machine; -1 means "does not apply".

    seq: position in the rank's step; parent: seq of the action this happened inside, such as an all-reduce in a layer.
    stream: "compute", or the communication stream: "dp", "tp", "tie", "world", "pp_act", "pp_grad".
    kind: an action kind of `engine.program.Kind`, or "collective" for a child operation, or "wait".
    name: for people, e.g. "forward block3 mb0" or "all_reduce"; op: the collective or "message", else "".
    group: mesh axis of the communication; peers: the ranks that take part.
    cpu_ns: processor time of the rank's main thread in between, so that waiting for a core can be told from working.
    flops, touched_bytes: of the operators executed, children excluded. before_flops: for a child, how many FLOPs of its
    parent came before it. logical_bytes: what the algorithm moves per rank; wire_bytes: what the backend moves.
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


CATEGORIES = ("params", "grads", "optimizer", "activations", "gathered", "buffers")

_TYPES = {int: pa.int64(), str: pa.string(), float: pa.float64(), tuple[int, ...]: pa.list_(pa.int32())}


def _schema(row: Any) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in get_type_hints(row).items()])


OPS_SCHEMA, MEMORY_SCHEMA, METRICS_SCHEMA = _schema(Op), _schema(MemoryRow), _schema(MetricRow)


@dataclass(frozen=True)
class Recording:
    """The three tables of a run."""

    ops: pa.Table
    memory: pa.Table
    metrics: pa.Table

    def op_rows(self) -> Iterator[Op]:
        for row in self.ops.to_pylist():
            yield Op(**row)


def table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    """Rows (named tuples or lists in column order) as an Arrow table."""
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def live_path(run_dir: Path, rank: int) -> Path:
    return run_dir / "live" / f"rank{rank:03d}.jsonl"


def append_live(path: Path, ops: list[Op], memory: list[MemoryRow]) -> None:
    """Puts one step's rows of one rank on the disk; called by the rank itself."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"ops": ops, "memory": memory}, separators=(",", ":")) + "\n")


def read_live(run_dir: Path) -> tuple[pa.Table, pa.Table]:
    """The ops and memory written so far. A last line cut short by a kill is left out."""
    ops: list[list[Any]] = []
    memory: list[list[Any]] = []
    for path in sorted((run_dir / "live").glob("rank*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                step = json.loads(line)
            except json.JSONDecodeError:
                break
            ops += step["ops"]
            memory += step["memory"]
    return table(ops, OPS_SCHEMA), table(memory, MEMORY_SCHEMA)


def append_metric(run_dir: Path, row: MetricRow) -> None:
    with (run_dir / "live" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read_live_metrics(run_dir: Path) -> pa.Table:
    path = run_dir / "live" / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return table([json.loads(line) for line in lines if line.endswith("]")], METRICS_SCHEMA)


def finalize(run_dir: Path) -> Recording:
    """Turns the live files of an ended run into Parquet and removes them."""
    ops, memory = read_live(run_dir)
    recording = Recording(ops, memory, read_live_metrics(run_dir))
    for name in ("ops", "memory", "metrics"):
        pq.write_table(getattr(recording, name), run_dir / f"{name}.parquet", compression="zstd")
    ended = (run_dir / "live").rename(run_dir / "live.ended")  # at once, so that no reader meets half of it
    shutil.rmtree(ended)
    return recording


def read_recording(run_dir: Path) -> Recording:
    """Reads a run, finished or not."""
    if (run_dir / "live").exists():
        ops, memory = read_live(run_dir)
        return Recording(ops, memory, read_live_metrics(run_dir))
    return Recording(*(_read_table(run_dir / f"{name}.parquet") for name in ("ops", "memory", "metrics")))


def _read_table(path: Path) -> pa.Table:
    """One file; `pq.read_table` would import pandas and the data-set machinery first."""
    with pq.ParquetFile(path) as file:
        return file.read()
