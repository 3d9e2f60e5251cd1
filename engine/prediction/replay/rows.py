"""One step of a recording as columns of numbers, what a replay and its analyses compute with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.cluster.operations import OPERATIONS
from engine.program.kinds import COLLECTIVE, Kind, kind_of_row, names_where
from engine.program.streams import STREAMS
from engine.recording.tables import Recording

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class StepRows:
    """The operations of one step, sorted by rank and then by `seq`, which is the order in which a rank does them.

    stands_for: rank → the recorded rank that stands for it, for ranks that are not recorded themselves.
    """

    table: pa.Table
    stands_for: Mapping[int, int]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def ints(self, name: str) -> Numbers:
        return np.asarray(self.table[name].to_numpy(), np.int64)

    def among(self, name: str, *values: str) -> Mask:
        """Rows whose column `name` is one of `values`."""
        found = pc.is_in(self.table[name], value_set=pa.array(values, pa.string()))
        return np.asarray(found.to_numpy(zero_copy_only=False), bool)

    def codes(self, name: str) -> tuple[Numbers, list[str]]:
        """(a number for the word in each row, the words by number)."""
        coded = self.table[name].combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        return np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64), coded.dictionary.to_pylist()

    @cached_property
    def rank(self) -> Numbers:
        return self.ints("rank")

    @cached_property
    def ranks(self) -> Numbers:
        """The recorded ranks."""
        return np.unique(self.rank)

    @cached_property
    def first(self) -> Mask:
        """The first row of each rank."""
        return np.asarray(np.diff(self.rank, prepend=-1) != 0)

    @cached_property
    def parent(self) -> Numbers:
        """Row of the action this row happened inside; -1 for none."""
        return self.find(self.rank, self.ints("parent"))

    @cached_property
    def ref(self) -> Numbers:
        """Row of the operation a wait waits for; -1 for none."""
        return self.find(self.rank, self.ints("ref"))

    def find(self, rank: Numbers, seq: Numbers) -> Numbers:
        """Row of each (rank, seq); -1 where there is none."""
        mine = self.ints("seq")
        stride = int(mine.max(initial=0)) + 1
        keys, wanted = self.rank * stride + mine, rank * stride + seq
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return np.where((seq >= 0) & (seq < stride) & (keys[at] == wanted), at, -1)

    @cached_property
    def fraction(self) -> NDArray[np.float64]:
        """For a row inside an action, the part of the action's FLOPs that comes before it; 1 if it has none at all."""
        whole = self.ints("flops")[self.parent]
        return np.where(whole > 0, self.ints("before_flops") / np.maximum(whole, 1), 1.0)

    @cached_property
    def start(self) -> Numbers:
        return self.ints("start_ns")

    @cached_property
    def end(self) -> Numbers:
        return self.ints("end_ns")

    @cached_property
    def name(self) -> list[str]:
        return [str(name) for name in self.table["name"].to_pylist()]

    @cached_property
    def is_wait(self) -> Mask:
        return self.among("kind", Kind.WAIT.name)

    @cached_property
    def is_compute(self) -> Mask:
        return self.among("kind", *names_where(lambda kind: kind.computes))

    @cached_property
    def is_send(self) -> Mask:
        return self.among("kind", *names_where(lambda kind: kind.sends))

    @cached_property
    def is_message(self) -> Mask:
        return self.is_send | self.among("kind", *names_where(lambda kind: kind.receives))

    @cached_property
    def is_collective(self) -> Mask:
        """A copy within a rank is a collective of one."""
        moves = names_where(lambda kind: kind.moves in ("collective", "copy"))
        return self.among("kind", COLLECTIVE, *moves)

    @cached_property
    def is_blocking(self) -> Mask:
        """Rows the compute stream cannot pass before they are done: waits, and collectives inside an action."""
        return self.is_wait | (self.is_collective & (self.parent >= 0))

    @cached_property
    def peers(self) -> tuple[Numbers, Numbers]:
        """(the peers of all rows, one row after the other; where each row's begin, with the end as a last entry)."""
        column = self.table["peers"].combine_chunks()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return np.asarray(column.values.to_numpy(), np.int64), np.asarray(column.offsets.to_numpy(), np.int64)

    def peers_of(self, row: int) -> tuple[int, ...]:
        values, begins = self.peers
        return tuple(values[begins[row] : begins[row + 1]].tolist())

    @cached_property
    def alike(self) -> tuple[tuple[str, int, Numbers], ...]:
        """All communication in parts: (collective or "message", one of its rows, all rows of that kind and peers).

        Groups of a mesh are evenly spaced, so first, second and last member with the size tell them apart.
        """
        these = np.flatnonzero(self.is_collective | self.is_message)
        if not len(these):
            return ()
        values, begins = self.peers
        first, size = begins[these], begins[these + 1] - begins[these]
        ends = values[first], values[first + np.minimum(size - 1, 1)], values[first + size - 1]
        op, words = self.codes("op")
        world = len(self.recorded_as)
        key = (op[these] * 2 + self.is_send[these]) * 2 + (ends[0] == self.rank[these])
        for part in (*ends, size):
            key = key * (world + 1) + part
        order = np.argsort(key, kind="stable")
        parts = np.split(these[order], np.flatnonzero(np.diff(key[order])) + 1)
        return tuple((words[op[part[0]]], int(part[0]), part) for part in parts)

    @cached_property
    def recorded_as(self) -> Numbers:
        """Rank → the recorded rank that stands for it."""
        highest = max(int(self.rank.max(initial=0)), int(self.peers[0].max(initial=0)), *self.stands_for, 0)
        like = np.arange(highest + 1)
        for rank, other in self.stands_for.items():
            like[rank] = other
        return like


def step_rows(recording: Recording, step: int, stands_for: Mapping[int, int] | None = None) -> StepRows:
    """The rows of `step`. Raises `ValueError` if there are none."""
    rows = recording.ops_of(step)
    if not rows.num_rows:
        raise ValueError(f"step {step} was not recorded: there are steps {recorded_steps(recording)}.")
    return StepRows(in_order(rows).combine_chunks(), recording.stands_for if stands_for is None else stands_for)


def check_words(rows: pa.Table) -> None:
    """Raises `Unknown` if any kind, stream or operation is one that nobody here knows, for it would be left out."""
    for kind in pc.unique(rows["kind"]).to_pylist():
        kind_of_row(kind)
    for stream in pc.unique(rows["stream"]).to_pylist():
        STREAMS[stream]
    for op in pc.unique(rows["op"]).to_pylist():
        if op:
            OPERATIONS[op]


def in_order(rows: pa.Table) -> pa.Table:
    """The rows by rank, and those of a rank by position. Raises `Unknown`, see `check_words`."""
    check_words(rows)
    rank, seq = (np.asarray(rows[name].to_numpy(), np.int64) for name in ("rank", "seq"))
    order = np.lexsort((seq, rank))
    return rows if (np.diff(order) == 1).all() else rows.take(whole(order))


def whole(values: Numbers) -> pa.Array:
    """A column of whole numbers. `pa.array` would import pandas for it, which takes a second or more."""
    values = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def step_to_show(recording: Recording) -> int:
    """The first step after the warm-up, if several were recorded. Raises `ValueError` if there is none at all."""
    steps = recorded_steps(recording)
    if not steps:
        raise ValueError("nothing was recorded: replay a run that completed a step.")
    return steps[min(1, len(steps) - 1)]


def recorded_steps(recording: Recording) -> list[int]:
    """Every step with at least one operation."""
    return sorted({step for batch in recording.ops_batches(["step"]) for step in pc.unique(batch["step"]).to_pylist()})
