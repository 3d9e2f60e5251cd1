"""The columns of the three tables, from the row classes of `engine.recording.tables`, and what versions have changed.

A column that all stored tables have is required; one that came later has a default, which fills the tables that lack
it. A column that nobody here knows is an error, for to leave it out would be a loss that nobody sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from operator import attrgetter
from typing import Any, get_type_hints

import pyarrow as pa

from engine.job.registry import Registry
from engine.recording.tables import MemoryRow, MetricRow, Op, OpCost

VERSION = 2
"""Of the tables; one more with each column. Tables of version 1 do not say so, nor do its live files name columns."""

FIRST: Mapping[str, tuple[str, ...]] = {
    "ops": (
        *("step", "rank", "seq", "parent", "stream", "kind", "name", "unit", "microbatch", "stage", "op", "group"),
        *("peers", "start_ns", "end_ns", "cpu_ns", "flops", "touched_bytes", "before_flops", "logical_bytes"),
        *("wire_bytes", "ref", "matmuls", "matmul_bytes", "operators", "batched_flops", "batched_bytes"),
    ),
    "memory": ("step", "rank", "time_ns", "category", "bytes"),
    "metrics": ("step", "loss", "grad_norm", "seconds", "tokens_per_second", "reference_loss"),
}
"""The columns of version 1, in its order: every table has them."""

_TYPES = {int: pa.int64(), str: pa.string(), float: pa.float64(), tuple[int, ...]: pa.list_(pa.int32())}


class NewerTables(ValueError):
    """A table was written by a later version of the lab, so its columns may mean what nobody here knows."""


class MissingColumn(ValueError):
    """A table lacks a column that all have: it is damaged."""


@dataclass(frozen=True)
class Column:
    """One column. of: its value in a row, found once, where the row is written: by a rank, of its own operations.

    type: a key of `_TYPES`. default: what fills a table that lacks the column; None: none lacks it.
    """

    name: str
    type: Any
    of: Callable[[Any], Any]
    default: Any = None

    @property
    def arrow(self) -> pa.DataType:
        return _TYPES[self.type]


def _columns(table: str, row: Any, inside: str = "") -> Iterator[Column]:
    """A column for each field of a row class, and for those of a field that is one itself."""
    defaults = _defaults(row)
    for name, kind in get_type_hints(row).items():
        if kind is OpCost:
            yield from _columns(table, kind, f"{name}.")
        else:
            assert name in FIRST[table] or name in defaults, f"the column {name} came later, so it needs a default"
            default = None if name in FIRST[table] else defaults[name]
            yield Column(name, kind, attrgetter(inside + name), default)


def _defaults(row: Any) -> dict[str, Any]:
    if is_dataclass(row):
        return {field.name: field.default for field in fields(row) if field.default is not MISSING}
    return dict(row._field_defaults)


COLUMNS: Mapping[str, Registry[Column]] = {
    "ops": Registry("column of operations", *_columns("ops", Op)),
    "memory": Registry("column of the memory table", *_columns("memory", MemoryRow)),
    "metrics": Registry("column of the metrics", *_columns("metrics", MetricRow)),
}
"""By table."""


def add_column(table: str, column: Column) -> Column:
    """Makes a column known that is plugged in (`engine.job.registry.plug_in`): its default fills the tables before."""
    assert column.default is not None, f"the column {column.name} comes later, so it needs a default"
    return COLUMNS[table].add(column)


def schema(table: str) -> pa.Schema:
    """Names and types of a table's columns, in their order."""
    return pa.schema([(column.name, column.arrow) for column in COLUMNS[table]])


def values(table: str, rows: Iterable[Any]) -> list[list[Any]]:
    """Row objects as lists of values in the order of the columns."""
    read = [column.of for column in COLUMNS[table]]
    return [[of(row) for of in read] for row in rows]


def table_of(table: str, rows: Iterable[Any]) -> pa.Table:
    """Row objects as an Arrow table."""
    return table_of_values(table, values(table, rows))


def table_of_values(table: str, rows: Sequence[Sequence[Any]]) -> pa.Table:
    """The same from lists of values in the order of the columns."""
    known = schema(table)
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(known)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, known, strict=True)], schema=known)


def table_of_arrays(table: str, arrays: Mapping[str, pa.Array]) -> pa.Table:
    """The same from a column's values each, in any order."""
    known = schema(table)
    return pa.table([arrays[name] for name in known.names], schema=known)


def check_names(table: str, names: Sequence[str], version: int, where: str) -> None:
    """Raises `NewerTables`, `MissingColumn`, or `Unknown` for a column that nobody here knows."""
    if version > VERSION:
        raise NewerTables(
            f"{where} is of version {version}, and this lab reads versions up to {VERSION}: "
            "it was written by a later one, open it with that."
        )
    for name in names:
        COLUMNS[table][name]
    for column in COLUMNS[table]:
        if column.default is None and column.name not in names:
            raise MissingColumn(f"{where} has no column {column.name}")


def arranged(table: str, names: Sequence[str], rows: list[list[Any]]) -> list[list[Any]]:
    """Rows whose values are those of the columns `names`, with those of all columns, in their order."""
    columns = list(COLUMNS[table])
    if [column.name for column in columns] == list(names):
        return rows
    at = {name: i for i, name in enumerate(names)}
    return [[row[at[c.name]] if c.name in at else c.default for c in columns] for row in rows]


def filled(table: str, found: pa.Table, wanted: Sequence[str]) -> pa.Table:
    """The columns wanted of a stored table, as `COLUMNS` has them; defaults where it lacks one."""
    columns = [COLUMNS[table][name] for name in wanted]
    arrays = [
        found[column.name]
        if column.name in found.column_names
        else pa.repeat(pa.scalar(column.default, column.arrow), found.num_rows)
        for column in columns
    ]
    return pa.table(arrays, schema=pa.schema([(column.name, column.arrow) for column in columns]))
