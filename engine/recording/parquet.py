"""A run's tables on the disk, once it has ended: `ops.parquet`, `memory.parquet` and `metrics.parquet`.

Reading falls back on the live files (`engine.recording.live_files`), so a run that goes on or was killed is read the
same way.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engine.plain_file import check_plain
from engine.recording.columns import COLUMNS, VERSION, check_names, filled, schema
from engine.recording.live_files import live_batches, read_live, read_live_metrics
from engine.recording.tables import TABLES, Recorded, Recording, of_step

_STANDS_FOR = b"stands_for"  # in the files' metadata, see `Recording`
_VERSION = b"tables_version"  # likewise, see `engine.recording.columns.VERSION`


def finalize(run_dir: Path) -> None:
    """Turns the live files of an ended run into Parquet, a row group for some steps at a time, and removes them."""
    options = {"compression": "zstd"}
    with (
        pq.ParquetWriter(run_dir / "ops.parquet", _versioned("ops"), **options) as ops_file,
        pq.ParquetWriter(run_dir / "memory.parquet", _versioned("memory"), **options) as memory_file,
    ):
        for ops, memory in live_batches(run_dir):
            ops_file.write_table(ops)
            memory_file.write_table(memory)
    metrics = read_live_metrics(run_dir).cast(_versioned("metrics"))
    pq.write_table(metrics, run_dir / "metrics.parquet", **options)
    ended = (run_dir / "live").rename(run_dir / "live.ended")  # at once, so that no reader meets half of it
    shutil.rmtree(ended)


def _versioned(table: str) -> pa.Schema:
    return schema(table).with_metadata({_VERSION: str(VERSION)})


def write_recording(run_dir: Path, recording: Recording) -> None:
    """The tables of a recording that is complete, as `finalize` leaves them; of ranks that stand for others say so."""
    for name in TABLES:
        pq.write_table(stored_table(recording, name), run_dir / f"{name}.parquet", compression="zstd")


def stored_table(recording: Recording, name: str) -> pa.Table:
    """One of `TABLES` as its file has it: its metadata say which ranks stand for others, and its version."""
    same = json.dumps([[rank, like] for rank, like in recording.stands_for.items()])
    rows: pa.Table = getattr(recording, name)
    return rows.replace_schema_metadata({_STANDS_FOR: same, _VERSION: str(VERSION)})


def read_recording(run_dir: Path) -> Recording:
    """Reads a run, finished or not. Of a finished one, what is asked for is read when it is asked for."""
    live = run_dir / "live"
    if live.exists():
        with suppress(FileNotFoundError):
            recording = Recorded(*read_live(run_dir), read_live_metrics(run_dir))
            if live.exists():
                return recording
        # it was finalised while we read, perhaps half of it: the tables are there now
    return open_stored(run_dir)


def _check_columns(found: pa.Schema, table: str) -> None:
    """Raises as `check_names` does, and `pa.ArrowInvalid` for a column that holds something else than it should."""
    check_names(table, found.names, int((found.metadata or {}).get(_VERSION, 1)), f"{table}.parquet")
    for column in COLUMNS[table]:
        if column.name in found.names and (kind := found.field(column.name).type) != column.arrow:
            raise pa.ArrowInvalid(f"its column {column.name} holds {kind}, not {column.arrow}")


@contextmanager
def _open(folder: Path, table: str) -> Iterator[pq.ParquetFile]:
    """One table; `pq.read_table` would import pandas and the data-set machinery first."""
    path = folder / f"{table}.parquet"
    try:
        check_plain(path)
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        reason = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
        raise OSError(f"{path} cannot be read: {reason}") from error


def open_stored(folder: Path) -> StoredRecording:
    """The Parquet tables of a finished run. Damage that shows in their frames is raised here, at once."""
    for table in TABLES:
        with _open(folder, table) as file:
            _check_columns(file.schema_arrow, table)
            same = (file.schema_arrow.metadata or {}).get(_STANDS_FOR, b"[]")
    return StoredRecording(folder, dict(json.loads(same)))


@dataclass(frozen=True, eq=False)
class StoredRecording(Recording):
    """The Parquet tables in a folder, each read when it is asked for; columns that came later hold their defaults."""

    folder: Path
    stands_for: Mapping[int, int]

    def check_ranks(self, world_size: int) -> None:
        """Raises `ValueError` if a table is about ranks that a job of this size does not have."""
        for name in ("ops", "memory"):
            with _open(self.folder, name) as file:
                at = file.schema_arrow.get_field_index("rank")
                groups = (file.metadata.row_group(group).column(at) for group in range(file.num_row_groups))
                for known in (column.statistics for column in groups if column.statistics is not None):
                    if known.has_min_max and not 0 <= known.min <= known.max < world_size:
                        raise ValueError(f"{name}.parquet is of ranks {known.min} to {known.max}, not of {world_size}")

    def _whole(self, table: str) -> pa.Table:
        with _open(self.folder, table) as file:
            return _read(file.read, file, table)

    @cached_property
    def ops(self) -> pa.Table:
        return self._whole("ops")

    @cached_property
    def memory(self) -> pa.Table:
        return self._whole("memory")

    @cached_property
    def metrics(self) -> pa.Table:
        return self._whole("metrics")

    def ops_batches(self, columns: list[str]) -> Iterator[pa.Table]:
        """A row group at a time, of these columns alone."""
        yield from self._groups("ops", columns)

    def memory_batches(self) -> Iterator[pa.Table]:
        """A row group at a time."""
        yield from self._groups("memory")

    def _groups(self, table: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
        with _open(self.folder, table) as file:
            for group in range(file.num_row_groups):
                yield _read(partial(file.read_row_group, group), file, table, columns)

    def ops_of(self, step: int) -> pa.Table:
        """Reads only the row groups that may hold the step."""
        found = [schema("ops").empty_table()]
        with _open(self.folder, "ops") as file:
            at = file.schema_arrow.get_field_index("step")
            for group in range(file.num_row_groups):
                known = file.metadata.row_group(group).column(at).statistics
                if known is None or known.min <= step <= known.max:
                    found.append(of_step(_read(partial(file.read_row_group, group), file, "ops"), step))
        return pa.concat_tables(found)


def _read(
    read: Callable[..., pa.Table], file: pq.ParquetFile, table: str, wanted: Sequence[str] | None = None
) -> pa.Table:
    """The columns wanted, by default all, of what `read` reads; defaults for those that the file lacks."""
    columns = COLUMNS[table].names if wanted is None else wanted
    there = [name for name in columns if name in file.schema_arrow.names]
    return filled(table, read(columns=there or ["step"]), columns)
