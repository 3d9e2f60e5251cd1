"""A run's tables on the disk, once it has ended: `ops.parquet`, `memory.parquet` and `metrics.parquet`.

Reading falls back on the live files (`engine.recording.live_files`), so a run that goes on or was killed is read the
same way.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from engine.recording.live_files import live_batches, read_live, read_live_metrics
from engine.recording.tables import MEMORY_SCHEMA, OPS_SCHEMA, SCHEMAS, TABLES, Recording, of_step

_STANDS_FOR = b"stands_for"  # in the files' metadata, see `Recording`


def finalize(run_dir: Path) -> None:
    """Turns the live files of an ended run into Parquet, a row group for some steps at a time, and removes them."""
    options = {"compression": "zstd"}
    with (
        pq.ParquetWriter(run_dir / "ops.parquet", OPS_SCHEMA, **options) as ops_file,
        pq.ParquetWriter(run_dir / "memory.parquet", MEMORY_SCHEMA, **options) as memory_file,
    ):
        for ops, memory in live_batches(run_dir):
            ops_file.write_table(ops)
            memory_file.write_table(memory)
    pq.write_table(read_live_metrics(run_dir), run_dir / "metrics.parquet", **options)
    ended = (run_dir / "live").rename(run_dir / "live.ended")  # at once, so that no reader meets half of it
    shutil.rmtree(ended)


def write_recording(run_dir: Path, recording: Recording) -> None:
    """The tables of a recording that is complete, as `finalize` leaves them; of ranks that stand for others say so."""
    for name in TABLES:
        pq.write_table(stored_table(recording, name), run_dir / f"{name}.parquet", compression="zstd")


def stored_table(recording: Recording, name: str) -> pa.Table:
    """One of `TABLES` as its file has it: its metadata say which ranks stand for others."""
    same = json.dumps([[rank, like] for rank, like in recording.stands_for.items()])
    rows: pa.Table = getattr(recording, name)
    return rows.replace_schema_metadata({_STANDS_FOR: same})


def read_recording(run_dir: Path) -> Recording:
    """Reads a run, finished or not. Of a finished one, what is asked for is read when it is asked for."""
    live = run_dir / "live"
    if live.exists():
        with suppress(FileNotFoundError):
            recording = Recording(*read_live(run_dir), read_live_metrics(run_dir))
            if live.exists():
                return recording
        # it was finalised while we read, perhaps half of it: the tables are there now
    return StoredRecording(run_dir)


def _check_columns(file: pq.ParquetFile, name: str) -> None:
    """Raises `pa.ArrowInvalid` that names the first column that is missing, or holds something else than it should."""
    found = file.schema_arrow
    for column in SCHEMAS[name]:
        if column.name not in found.names:
            raise pa.ArrowInvalid(f"it has no column {column.name}")
        if (kind := found.field(column.name).type) != column.type:
            raise pa.ArrowInvalid(f"its column {column.name} holds {kind}, not {column.type}")


class StoredRecording(Recording):
    """The Parquet tables of a finished run. Damage that shows in their frames is raised here, at once.

    Columns that this program does not know are left out; one that it does, and that is not there, is damage.
    """

    def __init__(self, run_dir: Path) -> None:
        self.__dict__.update(_folder=run_dir)  # past the frozen dataclass
        for name in TABLES:
            with self._open(name) as file:
                _check_columns(file, name)
                same = (file.schema_arrow.metadata or {}).get(_STANDS_FOR, b"[]")
        self.__dict__.update(stands_for=dict(json.loads(same)))

    def check_ranks(self, world_size: int) -> None:
        """Raises `ValueError` if a table is about ranks that a job of this size does not have."""
        for name in ("ops", "memory"):
            with self._open(name) as file:
                at = file.schema_arrow.get_field_index("rank")
                groups = (file.metadata.row_group(group).column(at) for group in range(file.num_row_groups))
                for known in (column.statistics for column in groups if column.statistics is not None):
                    if known.has_min_max and not 0 <= known.min <= known.max < world_size:
                        raise ValueError(f"{name}.parquet is of ranks {known.min} to {known.max}, not of {world_size}")

    @contextmanager
    def _open(self, name: str) -> Iterator[pq.ParquetFile]:
        """One table; `pq.read_table` would import pandas and the data-set machinery first."""
        path = self.__dict__["_folder"] / f"{name}.parquet"
        try:
            with pq.ParquetFile(path) as file:
                yield file
        except (OSError, pa.ArrowException) as error:
            reason = " ".join("".join(c if c.isprintable() else " " for c in str(error)).split())
            raise OSError(f"{path} cannot be read: {reason}") from error

    def _whole(self, name: str) -> pa.Table:
        with self._open(name) as file:
            return file.read(columns=SCHEMAS[name].names)

    def _groups(self, name: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
        with self._open(name) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=columns or SCHEMAS[name].names)

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
        yield from self._groups("ops", columns)

    def memory_batches(self) -> Iterator[pa.Table]:
        yield from self._groups("memory")

    def ops_of(self, step: int) -> pa.Table:
        """Reads only the row groups that may hold the step."""
        found = [OPS_SCHEMA.empty_table()]
        with self._open("ops") as file:
            for group in range(file.num_row_groups):
                known = file.metadata.row_group(group).column(0).statistics
                if known is None or known.min <= step <= known.max:
                    found.append(of_step(file.read_row_group(group, columns=OPS_SCHEMA.names), step))
        return pa.concat_tables(found)
