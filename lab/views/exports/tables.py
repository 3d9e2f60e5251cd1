"""A run's tables as CSV or Parquet files: `ops`, `memory` and `metrics`, columns as in `engine.recording.tables`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from engine.recording.parquet import stored_table
from engine.recording.tables import TABLES
from lab.analysis.recorded_run import RecordedRun
from lab.views.exports.parts import Part


def csv_parts(run: RecordedRun) -> list[Part]:
    """A CSV file a table, with a header; `peers` are ranks with spaces between. -1 means "does not apply"."""
    return _parts(run, "csv", _write_csv)


def parquet_parts(run: RecordedRun) -> list[Part]:
    """The tables as the run's own folder holds them, readable by `engine.recording.parquet.read_recording`."""
    return _parts(run, "parquet", _write_parquet)


def _parts(run: RecordedRun, suffix: str, write: Callable[[pa.Table, IO[bytes]], None]) -> list[Part]:
    def table(name: str, file: IO[bytes]) -> None:
        write(stored_table(run.recording, name), file)

    summary = Part("summary.json", lambda file: _write_json(run.summary, file))
    return [*(Part(f"{name}.{suffix}", partial(table, name)) for name in TABLES), summary]


def _write_json(value: object, file: IO[bytes]) -> None:
    file.write(json.dumps(value, indent=2).encode())


def _write_csv(rows: pa.Table, file: IO[bytes]) -> None:
    from pyarrow import csv

    if "peers" in rows.column_names:
        at = rows.column_names.index("peers")
        words = pc.binary_join(rows["peers"].cast(pa.list_(pa.string())), " ")
        rows = rows.set_column(at, "peers", words)
    csv.write_csv(rows, file)


def _write_parquet(rows: pa.Table, file: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    pq.write_table(rows, file, compression="zstd")
