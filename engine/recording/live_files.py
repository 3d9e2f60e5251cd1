"""The files of a run that goes on, or that ended before its tables were made: `live/rank003.jsonl` and others.

Each rank writes a line a step, which begins with its totals (`engine.recording.running_totals`), so that a killed run
stays readable. Each line names its columns, since any line may be the one that is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from engine.plain_file import lines_of, open_plain
from engine.recording.columns import (
    COLUMNS,
    FIRST,
    VERSION,
    arranged,
    check_names,
    schema,
    table_of_values,
    values,
)
from engine.recording.tables import MemoryRow, MetricRow, Op

if TYPE_CHECKING:
    from engine.recording.running_totals import Totals

BATCH_ROWS = 50_000  # rows in memory at a time when a run's files are read or turned into tables


def live_path(run_dir: Path, rank: int) -> Path:
    """Where a rank writes its rows while the run goes on."""
    return run_dir / "live" / f"rank{rank:03d}.jsonl"


def status_path(run_dir: Path) -> Path:
    """Where a run that goes on shows what its processes are doing (`engine.processes.status.board.read_board`)."""
    return run_dir / "live" / "status"


def append_live(path: Path, ops: list[Op], memory: list[MemoryRow], totals: Totals) -> None:
    """Puts one step's rows of one rank on the disk, and its totals up to then; called by the rank itself."""
    with path.open("a", encoding="utf-8") as file:
        columns = {"version": VERSION, "ops": COLUMNS["ops"].names, "memory": COLUMNS["memory"].names}
        rows = {"ops": values("ops", ops), "memory": values("memory", memory)}
        file.write(json.dumps({"so_far": totals, "columns": columns, **rows}, separators=(",", ":")) + "\n")


def rows_in(line: Mapping[str, Any], table: str) -> list[list[Any]]:
    """The rows of "ops" or "memory" in a line, with all columns. Raises as `check_names` does."""
    columns = line.get("columns", {"version": 1, **FIRST})
    check_names(table, columns[table], columns["version"], f"a live file's table {table}")
    return arranged(table, columns[table], line[table])


def live_bytes(run_dir: Path) -> int:
    """How much the ranks of a run that goes on, or ended early, have written."""
    return sum(path.stat().st_size for path in (run_dir / "live").glob("rank*.jsonl"))


def read_live(run_dir: Path) -> tuple[pa.Table, pa.Table]:
    """The ops and memory written so far, step by step. A last line cut short by a kill is left out."""
    batches = list(live_batches(run_dir))
    ops = pa.concat_tables([schema("ops").empty_table(), *(ops for ops, _ in batches)])
    return ops, pa.concat_tables([schema("memory").empty_table(), *(memory for _, memory in batches)])


def live_batches(run_dir: Path) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Ops and memory of some consecutive steps at a time, all ranks of a step together, so that memory is bounded."""
    ops: list[list[Any]] = []
    memory: list[list[Any]] = []
    with ExitStack() as stack:
        paths = sorted((run_dir / "live").glob("rank*.jsonl"))
        files = [_live_lines(stack.enter_context(open_plain(path))) for path in paths]
        for lines in zip_longest(*files):  # the lines of one step
            for line in filter(None, lines):
                ops += rows_in(line, "ops")
                memory += rows_in(line, "memory")
            if len(ops) + len(memory) >= BATCH_ROWS:
                yield table_of_values("ops", ops), table_of_values("memory", memory)
                ops, memory = [], []
    if ops or memory:
        yield table_of_values("ops", ops), table_of_values("memory", memory)


def _live_lines(file: BinaryIO) -> Iterator[dict[str, Any]]:
    for line in lines_of(file):
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return


def live_reference_path(run_dir: Path) -> Path:
    """The losses of the one-process run, `{"losses": […], "grad_norms": […]}`, from when they are known on."""
    return run_dir / "live" / "reference.json"


def append_metric(run_dir: Path, row: MetricRow) -> None:
    """Writes the loss and the like of one step. Raises `OSError`."""
    with (run_dir / "live" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(metric_line(row))


def metric_line(row: MetricRow) -> str:
    """A line of `live/metrics.jsonl`."""
    named = dict(zip(COLUMNS["metrics"].names, values("metrics", [row])[0], strict=True))
    return json.dumps({"version": VERSION, "metrics": named}) + "\n"


def metric_values(line: Any) -> list[Any]:
    """The values of all columns in a line, read as JSON. Raises as `check_names` does, `TypeError` for what is none."""
    old = isinstance(line, list)  # version 1
    if not old and not (isinstance(line, dict) and isinstance(line.get("metrics"), dict)):
        raise TypeError("the line is not one of the metrics.")
    names = list(FIRST["metrics"]) if old else list(line["metrics"])
    row = line if old else list(line["metrics"].values())
    if len(row) != len(names):
        raise TypeError(f"the line has {len(row)} values for {len(names)} columns.")
    check_names("metrics", names, 1 if old else line["version"], "a live file's table metrics")
    return arranged("metrics", names, [row])[0]


def read_live_metrics(run_dir: Path) -> pa.Table:
    """Those of the steps that are done so far; a line that is being written is left out."""
    path = run_dir / "live" / "metrics.jsonl"
    rows: list[list[Any]] = []
    if path.exists():
        with open_plain(path) as file:
            rows = [metric_values(json.loads(line)) for line in lines_of(file) if line.endswith(b"\n")]
    return table_of_values("metrics", rows)
