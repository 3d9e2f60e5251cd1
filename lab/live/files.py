"""The files of a run that goes on, read from their ends: only what is new, or only the newest.

A run writes while it is read, may be killed in the midst of a line, and its folder may be deleted at any moment. What
is not there, or not whole, is left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from engine.plain_file import LINE, open_plain
from engine.recording.columns import table_of, table_of_values
from engine.recording.live_files import live_path, metric_values, rows_in
from engine.recording.running_totals import Totals, read_totals
from engine.recording.tables import MemoryRow, MetricRow, Recording

MOST_AT_ONCE = 2**20  # bytes of metrics taken in by one look: some 10,000 steps
_BLOCK = 2**16
_MOST_BACK = 8  # lines by which one rank's file may be ahead of another's; they keep in step, so it is one


class MetricsFile:
    """All rows of `live/metrics.jsonl`. Each `read` takes in those that have come since the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[MetricRow] = []
        self.behind = False  # there is more to take in: the file grew by too much for one look
        self._at, self._inode = 0, 0

    def read(self) -> None:
        """Raises `OSError` if the file is not there."""
        with open_plain(self._path) as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._at:  # written anew, or cut short
                self.rows, self._at, self._inode = [], 0, found.st_ino
            file.seek(self._at)
            new = file.read(MOST_AT_ONCE)
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        self.behind = len(new) == MOST_AT_ONCE
        self.rows += _metrics(whole.splitlines())


def _metrics(lines: list[bytes]) -> list[MetricRow]:
    """The rows that can be read; those of good lines, which is nearly always all, in one go.

    Raises as `engine.recording.columns.check_names` does: columns that nobody here knows are no damage.
    """
    try:
        found = [metric_values(line) for line in json.loads(b"[%b]" % b",".join(lines))]
        return [MetricRow(*values[: len(MetricRow._fields)]) for values in found]
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError):
        return [row for line in lines for row in _metrics([line])] if len(lines) > 1 else []


@dataclass(frozen=True)
class Line:
    """A step of one rank: its totals, and the line it stands in, which begins at byte `at` of the rank's file."""

    totals: Totals
    at: int
    text: bytes


def newest_lines(run_dir: Path, world_size: int) -> list[Line]:
    """The newest step of which all ranks have written their rows, a line a rank; [] if there is none.

    Reads as much as the lines are long, however long the files. Raises `OSError` if a file is not there.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(open_plain(live_path(run_dir, rank))) for rank in range(world_size)]
        newest = [_line_before(file, os.fstat(file.fileno()).st_size) for file in files]
        step = min(-1 if line is None else line.totals.step for line in newest)
        lines = [_back_to(step, line, file) for line, file in zip(newest, files, strict=True)]
    return [line for line in lines if line is not None] if None not in lines else []


def _back_to(step: int, line: Line | None, file: BinaryIO) -> Line | None:
    for _ in range(_MOST_BACK):
        if line is None or line.totals.step <= step:
            break
        line = _line_before(file, line.at)
    return line if line is not None and line.totals.step == step else None


def _line_before(file: BinaryIO, end: int) -> Line | None:
    """The last whole line of those that end before byte `end`; None if there is none, or it is damaged."""
    text, at, block = b"", end, _BLOCK
    while at > 0 and len(text) < LINE:
        begin = max(0, at - block)
        file.seek(begin)
        text, at, block = file.read(at - begin) + text, begin, 2 * block
        stop = text.rfind(b"\n")
        start = text.rfind(b"\n", 0, max(stop, 0)) + 1
        if stop >= 0 and (start or at == 0):
            try:
                return Line(read_totals(text[start:stop]), at + start, text[start:stop])
            except ValueError:
                return None
    return None


def step_recording(lines: Sequence[Line], metrics: Sequence[MetricRow]) -> StepRecording:
    """lines: of one step, one of each rank. metrics: of any steps, of which that step's row is taken."""
    mine = [row for row in metrics if row.step == lines[0].totals.step]
    return StepRecording(lines, table_of("metrics", mine))


@dataclass(frozen=True, eq=False)
class StepRecording(Recording):
    """One step of a run, all ranks. Its rows are made when they are asked for; `ValueError` if a line is damaged.

    The memory table begins with what each rank held before the step. The metrics have its row, once it is known.
    """

    lines: Sequence[Line]
    metrics: pa.Table
    stands_for: Mapping[int, int] = field(default_factory=dict)

    @cached_property
    def _read(self) -> list[dict[str, Any]]:
        return [json.loads(line.text) for line in self.lines]

    @cached_property
    def ops(self) -> pa.Table:
        return table_of_values("ops", [op for line in self._read for op in rows_in(line, "ops")])

    @cached_property
    def memory(self) -> pa.Table:
        rows = [table_of_values("memory", rows_in(line, "memory")) for line in self._read]
        before = [table_of("memory", self._before(line, held)) for line, held in zip(self._read, rows, strict=True)]
        return pa.concat_tables([part for both in zip(before, rows, strict=True) for part in both])

    def _before(self, line: dict[str, Any], held: pa.Table) -> list[MemoryRow]:
        """What a rank held when the step began."""
        totals, ops = Totals(*line["so_far"]), table_of_values("ops", rows_in(line, "ops"))
        begin = min([*ops["start_ns"].to_pylist(), *held["time_ns"].to_pylist()])
        rank, before = ops["rank"][0].as_py(), totals.before.items()
        return [MemoryRow(totals.step, rank, begin, category, nbytes) for category, nbytes in before if nbytes]
