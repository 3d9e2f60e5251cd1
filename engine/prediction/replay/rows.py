"""One step of a recording as columns: what a replay computes with, and analyses and figures look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.program.kinds import COLLECTIVE, KINDS, Kind, names_where
from engine.program.streams import COMPUTE_STREAM, STREAMS

Numbers = NDArray[np.int64]
Words = NDArray[np.object_]
Mask = NDArray[np.bool_]

_SENDER_IS = {Kind.RECV_ACT.name: -1, Kind.RECV_GRAD.name: 1}  # stages from the receiver


@dataclass(frozen=True, eq=False)
class StepRows:
    """The operations of one step, sorted by rank and then by `seq`, which is the order in which a rank does them.

    Times are ns of the recording's clock. stands_for: rank → the recorded rank that stands for it, where not every
    rank is recorded.
    """

    table: pa.Table
    stands_for: Mapping[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    # -- columns

    def ints(self, name: str) -> Numbers:
        return np.asarray(self.table[name].to_numpy(), np.int64)

    def words(self, name: str) -> Words:
        return np.asarray(self.table[name].to_numpy(zero_copy_only=False), object)

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
    def seq(self) -> Numbers:
        return self.ints("seq")

    @cached_property
    def microbatch(self) -> Numbers:
        return self.ints("microbatch")

    @cached_property
    def stage(self) -> Numbers:
        return self.ints("stage")

    @cached_property
    def start(self) -> Numbers:
        return self.ints("start_ns")

    @cached_property
    def end(self) -> Numbers:
        return self.ints("end_ns")

    @cached_property
    def cpu(self) -> Numbers:
        return self.ints("cpu_ns")

    @cached_property
    def logical(self) -> Numbers:
        return self.ints("logical_bytes")

    @cached_property
    def wire(self) -> Numbers:
        return self.ints("wire_bytes")

    @cached_property
    def stream(self) -> Words:
        return self.words("stream")

    @cached_property
    def kind(self) -> Words:
        return self.words("kind")

    @cached_property
    def op(self) -> Words:
        return self.words("op")

    @cached_property
    def name(self) -> Words:
        return self.words("name")

    @cached_property
    def unit(self) -> Words:
        return self.words("unit")

    @cached_property
    def axis(self) -> Words:
        """What each row communicates on, one of `axis_order`; "" for the compute stream."""
        stream, names = self.codes("stream")
        return np.asarray(np.array([STREAMS[name].axis for name in names], object)[stream], object)

    # -- which row belongs to which

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
        """Row of each (rank, seq), by which the rows are sorted; -1 where there is none."""
        keys, stride = self._keys
        wanted = rank * stride + seq
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        return np.where((seq >= 0) & (seq < stride) & (keys[at] == wanted), at, -1)

    @cached_property
    def _keys(self) -> tuple[Numbers, int]:
        stride = int(self.seq.max(initial=0)) + 1
        return self.rank * stride + self.seq, stride

    @cached_property
    def fraction(self) -> NDArray[np.float64]:
        """For a row inside an action, the part of the action's FLOPs that comes before it; 1 if it has none at all."""
        whole = self.ints("flops")[self.parent]
        return np.where(whole > 0, self.ints("before_flops") / np.maximum(whole, 1), 1.0)

    @cached_property
    def sent_by(self) -> dict[int, int]:
        """Row of each receive → row of its send; receives whose sender is not recorded are left out."""
        sends: dict[tuple[object, ...], int] = {}
        receives: dict[int, tuple[object, ...]] = {}
        for row in np.flatnonzero(self.is_message).tolist():
            kind, rank = KINDS[str(self.kind[row])], int(self.rank[row])
            micro, stage = int(self.microbatch[row]), int(self.stage[row])
            if kind.receives:
                sender = stage + _SENDER_IS[kind.name]
                receives[row] = (self.recorded(self.other_end(row)), kind.partner, micro, sender)
            else:
                sends[rank, kind.name, micro, stage] = row
        return {row: sends[key] for row, key in receives.items() if key in sends}

    # -- what a row is

    @cached_property
    def on_compute(self) -> Mask:
        return self.among("stream", COMPUTE_STREAM)

    @cached_property
    def is_wait(self) -> Mask:
        return self.among("kind", Kind.WAIT.name)

    @cached_property
    def is_compute(self) -> Mask:
        """Forward, backward, update and their kin, as against waits and communication."""
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
    def in_norm(self) -> Mask:
        """Communication inside the sum of the gradient norm: the rank stands still for it, with nothing else to do."""
        sums = self.among("kind", *names_where(lambda kind: kind.sums_norm))
        return np.asarray(~self.on_compute & (self.parent >= 0) & sums[self.parent], bool)

    # -- who takes part

    @cached_property
    def flat_peers(self) -> tuple[Numbers, Numbers]:
        """(the peers of all rows, one row after the other; where each row's begin, with the end as a last entry)."""
        column = self.table["peers"].combine_chunks()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return np.asarray(column.values.to_numpy(), np.int64), np.asarray(column.offsets.to_numpy(), np.int64)

    @cached_property
    def peers(self) -> list[list[int]]:
        """Of each row. Equal lists are one, or making them would take most of the time."""
        values, begins = (part.tolist() for part in self.flat_peers)
        known: dict[tuple[int, ...], list[int]] = {}
        return [known.setdefault(tuple(values[a:b]), values[a:b]) for a, b in pairwise(begins)]

    def peers_of(self, row: int) -> tuple[int, ...]:
        values, begins = self.flat_peers
        return tuple(values[begins[row] : begins[row + 1]].tolist())

    def other_end(self, row: int) -> int:
        """The other rank of a message."""
        return next((p for p in self.peers_of(row) if p != self.rank[row]), -1)

    @cached_property
    def alike(self) -> tuple[tuple[str, int, Numbers], ...]:
        """All communication in parts: (collective or "message", one of its rows, all rows of that kind and peers).

        Groups of a mesh are evenly spaced, so first, second and last member with the size tell them apart.
        """
        these = np.flatnonzero(self.is_collective | self.is_message)
        if not len(these):
            return ()
        values, begins = self.flat_peers
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

    # -- the recorded ranks

    @cached_property
    def ranks(self) -> list[int]:
        """The recorded ranks."""
        return [int(rank) for rank in np.unique(self.rank)]

    def by_rank(self) -> Iterator[tuple[int, slice]]:
        """(rank, its rows)."""
        edges = [*np.searchsorted(self.rank, self.ranks).tolist(), len(self.rank)]
        for rank, first, after in zip(self.ranks, edges, edges[1:], strict=False):
            yield rank, slice(first, after)

    def recorded(self, rank: int) -> int:
        """The rank whose rows are those of `rank` too."""
        return self.stands_for.get(rank, rank)

    @cached_property
    def recorded_as(self) -> Numbers:
        """Rank → the recorded rank that stands for it."""
        highest = max(int(self.rank.max(initial=0)), int(self.flat_peers[0].max(initial=0)), *self.stands_for, 0)
        like = np.arange(highest + 1)
        for rank, other in self.stands_for.items():
            like[rank] = other
        return like

    @cached_property
    def weight(self) -> Mapping[int, int]:
        """How many ranks each recorded one counts for."""
        return Counter(self.stands_for.values()) or dict.fromkeys(self.ranks, 1)

    @cached_property
    def rank_names(self) -> Mapping[int, str]:
        """What each recorded rank is called: with how many others it stands for, if it does."""
        return {rank: named(rank, self.weight.get(rank, 1)) for rank in self.ranks}


def named(rank: int, count: int) -> str:
    """A rank's name, with how many others it stands for where only one of `count` alike is recorded."""
    return f"rank {rank} (and {count - 1:,} like it)" if count > 1 else f"rank {rank}"


def whole(values: Numbers) -> pa.Array:
    """A column of whole numbers. `pa.array` would import pandas for it, which takes a second or more."""
    values = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
