"""The recording: what each rank really did, in order, as plain tables. The names here are the names in the files.

A run's folder holds, while the run goes on, `live/rank003.jsonl` (one line a step and rank, which begins with the
rank's totals, `engine.so_far`) and, once it has ended, the Parquet tables `ops`, `memory` and `metrics`. Reading falls
back on the live files, so a killed run stays readable.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from engine.so_far import SoFar

_STANDS_FOR = b"stands_for"  # in the files' metadata, see `Recording`
BATCH_ROWS = 50_000  # rows in memory at a time when a run's files are read or turned into tables


class Op(NamedTuple):
    """One operation of one rank. Times are ns of one clock for all ranks of a machine; -1 means "does not apply".

    seq: position in the rank's step; parent: seq of the action this happened inside, such as an all-reduce in a layer.
    stream: "compute", or the communication stream: "dp", "tp", "tie", "world", "pp_act", "pp_grad".
    kind: an action kind of `engine.program.Kind`, or "collective" for a child operation, or "wait".
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
_SCHEMAS = dict(zip(TABLES, (OPS_SCHEMA, MEMORY_SCHEMA, METRICS_SCHEMA), strict=True))


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
        return _of_step(self.ops, step)

    def ops_batches(self, columns: list[str]) -> Iterator[pa.Table]:
        """The columns asked for, some steps at a time, each step in one piece."""
        yield self.ops.select(columns)

    def memory_batches(self) -> Iterator[pa.Table]:
        """The memory table in pieces, in the order of steps."""
        yield self.memory

    def op_rows(self) -> Iterator[Op]:
        for row in self.ops.to_pylist():
            yield Op(**row)


def _of_step(ops: pa.Table, step: int) -> pa.Table:
    mine = pc.equal(ops["step"], step)
    return ops if pc.all(mine).as_py() else ops.filter(mine)


def table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    """Rows (named tuples or lists in column order) as an Arrow table."""
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def live_path(run_dir: Path, rank: int) -> Path:
    return run_dir / "live" / f"rank{rank:03d}.jsonl"


def status_path(run_dir: Path) -> Path:
    """Where a run that goes on shows what each of its processes is doing (`engine.processes.status.read_board`)."""
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
    batches = list(_live_batches(run_dir))
    ops = pa.concat_tables([OPS_SCHEMA.empty_table(), *(ops for ops, _ in batches)])
    return ops, pa.concat_tables([MEMORY_SCHEMA.empty_table(), *(memory for _, memory in batches)])


def _live_batches(run_dir: Path) -> Iterator[tuple[pa.Table, pa.Table]]:
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


def finalize(run_dir: Path) -> None:
    """Turns the live files of an ended run into Parquet, a row group for some steps at a time, and removes them."""
    options = {"compression": "zstd"}
    with (
        pq.ParquetWriter(run_dir / "ops.parquet", OPS_SCHEMA, **options) as ops_file,
        pq.ParquetWriter(run_dir / "memory.parquet", MEMORY_SCHEMA, **options) as memory_file,
    ):
        for ops, memory in _live_batches(run_dir):
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
    for column in _SCHEMAS[name]:
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
            raise OSError(f"{path} cannot be read: {error}") from error

    def _whole(self, name: str) -> pa.Table:
        with self._open(name) as file:
            return file.read(columns=_SCHEMAS[name].names)

    def _groups(self, name: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
        with self._open(name) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group, columns=columns or _SCHEMAS[name].names)

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
                    found.append(_of_step(file.read_row_group(group, columns=OPS_SCHEMA.names), step))
        return pa.concat_tables(found)
