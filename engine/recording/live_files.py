"""The files of a run that goes on, or that ended before its tables were made: `live/rank003.jsonl` and others.

Each rank writes a line a step, which begins with its totals (`engine.recording.running_totals`), so that a killed run
stays readable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from engine.recording.tables import MEMORY_SCHEMA, METRICS_SCHEMA, OPS_SCHEMA, MemoryRow, MetricRow, Op, table

if TYPE_CHECKING:
    from engine.recording.running_totals import SoFar

BATCH_ROWS = 50_000  # rows in memory at a time when a run's files are read or turned into tables


def live_path(run_dir: Path, rank: int) -> Path:
    return run_dir / "live" / f"rank{rank:03d}.jsonl"


def status_path(run_dir: Path) -> Path:
    """Where a run that goes on shows what its processes are doing (`engine.processes.status.board.read_board`)."""
    return run_dir / "live" / "status"


def append_live(path: Path, ops: list[Op], memory: list[MemoryRow], so_far: SoFar) -> None:
    """Puts one step's rows of one rank on the disk, and its totals up to then; called by the rank itself."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"so_far": so_far, "ops": ops, "memory": memory}, separators=(",", ":")) + "\n")


def live_bytes(run_dir: Path) -> int:
    """How much the ranks of a run that goes on, or ended early, have written."""
    return sum(path.stat().st_size for path in (run_dir / "live").glob("rank*.jsonl"))


def read_live(run_dir: Path) -> tuple[pa.Table, pa.Table]:
    """The ops and memory written so far, step by step. A last line cut short by a kill is left out."""
    batches = list(live_batches(run_dir))
    ops = pa.concat_tables([OPS_SCHEMA.empty_table(), *(ops for ops, _ in batches)])
    return ops, pa.concat_tables([MEMORY_SCHEMA.empty_table(), *(memory for _, memory in batches)])


def live_batches(run_dir: Path) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Ops and memory of some consecutive steps at a time, all ranks of a step together, so that memory is bounded."""
    ops: list[list[Any]] = []
    memory: list[list[Any]] = []
    with ExitStack() as stack:
        paths = sorted((run_dir / "live").glob("rank*.jsonl"))
        files = [_live_lines(stack.enter_context(path.open(encoding="utf-8"))) for path in paths]
        for lines in zip_longest(*files):  # the lines of one step
            for line in filter(None, lines):
                ops += line["ops"]
                memory += line["memory"]
            if len(ops) + len(memory) >= BATCH_ROWS:
                yield table(ops, OPS_SCHEMA), table(memory, MEMORY_SCHEMA)
                ops, memory = [], []
    if ops or memory:
        yield table(ops, OPS_SCHEMA), table(memory, MEMORY_SCHEMA)


def _live_lines(file: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in file:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def live_reference_path(run_dir: Path) -> Path:
    """The losses of the one-process run, `{"losses": […], "grad_norms": […]}`, from when they are known on."""
    return run_dir / "live" / "reference.json"


def append_metric(run_dir: Path, row: MetricRow) -> None:
    with (run_dir / "live" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read_live_metrics(run_dir: Path) -> pa.Table:
    path = run_dir / "live" / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return table([json.loads(line) for line in lines if line.endswith("]")], METRICS_SCHEMA)
