"""One step of a recording as columns, and which step to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.prediction.replay.rows import in_order, recorded_steps
from engine.program.kinds import KINDS, Kind, names_where
from engine.program.streams import COMPUTE_STREAM, STREAMS
from engine.recording.tables import Recording

Numbers = NDArray[np.int64]
Words = NDArray[np.object_]
Mask = NDArray[np.bool_]

_SENDER_IS = {Kind.RECV_ACT.name: -1, Kind.RECV_GRAD.name: 1}  # stages from the receiver


class NoStep(LookupError):
    """The recording has no operation of the step asked for."""


@dataclass(frozen=True, eq=False)
class StepOps:
    """The rows of one step, sorted by rank and position in the rank's step. Times are ns on the recording's
    clock. stands_for: rank → the recorded rank that does what it does, where not every rank is recorded.
    """

    table: pa.Table
    stands_for: Mapping[int, int] = field(default_factory=dict)

    def _ints(self, name: str) -> Numbers:
        return np.asarray(self.table[name].to_numpy(), np.int64)

    def among(self, name: str, values: Iterable[str]) -> Mask:
        """Rows whose column `name` is one of `values`."""
        found = pc.is_in(self.table[name], value_set=pa.array(list(values), pa.string()))
        return np.asarray(found.to_numpy(), bool)

    def _words(self, name: str) -> Words:
        return np.asarray(self.table[name].to_numpy(zero_copy_only=False), object)

    @cached_property
    def rank(self) -> Numbers:
        return self._ints("rank")

    @cached_property
    def seq(self) -> Numbers:
        return self._ints("seq")

    @cached_property
    def parent(self) -> Numbers:
        return self._ints("parent")

    @cached_property
    def microbatch(self) -> Numbers:
        return self._ints("microbatch")

    @cached_property
    def stage(self) -> Numbers:
        return self._ints("stage")

    @cached_property
    def start(self) -> Numbers:
        return self._ints("start_ns")

    @cached_property
    def end(self) -> Numbers:
        return self._ints("end_ns")

    @cached_property
    def cpu(self) -> Numbers:
        return self._ints("cpu_ns")

    @cached_property
    def logical(self) -> Numbers:
        return self._ints("logical_bytes")

    @cached_property
    def wire(self) -> Numbers:
        return self._ints("wire_bytes")

    @cached_property
    def ref(self) -> Numbers:
        return self._ints("ref")

    @cached_property
    def stream(self) -> Words:
        return self._words("stream")

    @cached_property
    def kind(self) -> Words:
        return self._words("kind")

    @cached_property
    def op(self) -> Words:
        return self._words("op")

    @cached_property
    def name(self) -> Words:
        return self._words("name")

    @cached_property
    def unit(self) -> Words:
        return self._words("unit")

    @cached_property
    def peers(self) -> list[list[int]]:
        column = self.table["peers"].combine_chunks()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        members, edges = column.values.to_pylist(), column.offsets.to_pylist()
        known: dict[tuple[int, ...], list[int]] = {}  # equal lists are one, or making them takes most of the time
        return [known.setdefault(tuple(members[a:b]), members[a:b]) for a, b in pairwise(edges)]

    @cached_property
    def on_compute(self) -> Mask:
        return self.among("stream", [COMPUTE_STREAM])

    @cached_property
    def is_wait(self) -> Mask:
        return self.among("kind", [Kind.WAIT.name])

    @cached_property
    def is_compute(self) -> Mask:
        """Forward, backward, step and their kin, as against waits and communication."""
        return self.among("kind", names_where(lambda kind: kind.computes)) & self.on_compute

    @cached_property
    def axis(self) -> Words:
        """What each row communicates on, one of `axis_order`; "" for the compute stream."""
        coded = self.table["stream"].combine_chunks().dictionary_encode()
        axes = np.array([STREAMS[name].axis for name in coded.dictionary.to_pylist()], object)
        return np.asarray(axes[coded.indices.to_numpy()], object)

    @cached_property
    def ranks(self) -> list[int]:
        return [int(r) for r in np.unique(self.rank)]

    @cached_property
    def _keys(self) -> Numbers:
        return self.rank * self._stride + self.seq

    @cached_property
    def _stride(self) -> int:
        return int(self.seq.max(initial=0)) + 1

    def find(self, rank: Numbers, seq: Numbers) -> Numbers:
        """Row of each (rank, seq), -1 where the step has none (rows are sorted by just these two)."""
        wanted = rank * self._stride + seq
        at = np.minimum(np.searchsorted(self._keys, wanted), max(len(self._keys) - 1, 0))
        return np.where((seq >= 0) & (seq < self._stride) & (self._keys[at] == wanted), at, -1)

    @cached_property
    def in_step(self) -> Mask:
        """Communication inside the sum of the gradient norm: the rank stands still for it, with nothing else to do."""
        parent = self.find(self.rank, self.parent)
        sums = self.among("kind", names_where(lambda kind: kind.sums_norm))
        return np.asarray(~self.on_compute & (parent >= 0) & sums[parent], bool)

    @cached_property
    def sent_by(self) -> dict[int, int]:
        """Row of each receive → row of its send; receives whose sender is not recorded are left out."""
        sends: dict[tuple[object, ...], int] = {}
        receives: dict[int, tuple[object, ...]] = {}
        messages = names_where(lambda kind: kind.moves == "message")
        for row in np.flatnonzero(self.among("kind", messages)).tolist():
            kind, rank = KINDS[str(self.kind[row])], int(self.rank[row])
            micro, stage = int(self.microbatch[row]), int(self.stage[row])
            if kind.receives:
                sender = stage + _SENDER_IS[kind.name]
                receives[row] = (self.recorded(self.other_end(row)), kind.partner, micro, sender)
            else:
                sends[rank, kind.name, micro, stage] = row
        return {row: sends[key] for row, key in receives.items() if key in sends}

    def other_end(self, row: int) -> int:
        """The other rank of a message."""
        return next((p for p in self.peers[row] if p != self.rank[row]), -1)

    def recorded(self, rank: int) -> int:
        """The rank whose rows are those of `rank` too."""
        return self.stands_for.get(rank, rank)

    @cached_property
    def weight(self) -> Mapping[int, int]:
        """How many ranks each recorded one counts for."""
        return Counter(self.stands_for.values()) or dict.fromkeys(self.ranks, 1)

    @cached_property
    def rank_names(self) -> Mapping[int, str]:
        """What each recorded rank is called: with how many others it stands for, if it does."""
        return {rank: named(rank, self.weight.get(rank, 1)) for rank in self.ranks}

    def by_rank(self) -> Iterator[tuple[int, slice]]:
        """(rank, its rows)."""
        edges = [*np.searchsorted(self.rank, self.ranks).tolist(), len(self.rank)]
        for rank, first, after in zip(self.ranks, edges, edges[1:], strict=False):
            yield rank, slice(first, after)


def rank_name(recording: Recording, rank: int) -> str:
    """What a recorded rank is called."""
    return named(rank, sum(like == rank for like in recording.stands_for.values()))


def named(rank: int, count: int) -> str:
    """A rank's name, with how many others it stands for where only one of `count` alike is recorded."""
    return f"rank {rank} (and {count - 1:,} like it)" if count > 1 else f"rank {rank}"


def step_ops(recording: Recording, step: int) -> StepOps:
    """The rows of `step`, kept until another step is asked for. Raises `NoStep` if there are none."""
    kept = _kept.get(recording)
    if kept is None or kept[0] != step:
        kept = _kept[recording] = (step, _step_ops(recording, step))
    return kept[1]


_kept: WeakKeyDictionary[Recording, tuple[int, StepOps]] = WeakKeyDictionary()


def _step_ops(recording: Recording, step: int) -> StepOps:
    rows = recording.ops_of(step)
    if not rows.num_rows:
        raise NoStep(f"step {step} was not recorded: there are steps {recorded_steps(recording)}.")
    return StepOps(in_order(rows).combine_chunks(), recording.stands_for)


def step_window(recording: Recording, step: int) -> tuple[int, int]:
    """(first start, last end) of `step` in ns, over the compute streams of all ranks, waits included."""
    return window_of(step_ops(recording, step))


def window_of(ops: StepOps) -> tuple[int, int]:
    rows = ops.on_compute if ops.on_compute.any() else np.ones(len(ops.rank), bool)
    return int(ops.start[rows].min()), int(ops.end[rows].max())


def typical_step(recording: Recording) -> int | None:
    """The step to show: of those all ranks completed, the first left out as warm-up, the one of median length.

    With an even number the shorter of the two in the middle. A run cut short in its first step shows that;
    a run without operations has none. It is looked for once in a recording.
    """
    if recording not in _typical:
        _typical[recording] = _typical_step(recording)
    return _typical[recording]


_typical: WeakKeyDictionary[Recording, int | None] = WeakKeyDictionary()


def _typical_step(recording: Recording) -> int | None:
    lengths: dict[int, int] = {}
    finished: dict[int, int] = {}  # by how many ranks
    ranks: set[int] = set()
    for ops in recording.ops_batches(["step", "rank", "kind", "stream", "start_ns", "end_ns"]):
        ranks.update(pc.unique(ops["rank"]).to_pylist())
        once = pa.array(names_where(lambda kind: kind.sums_norm))
        stepped = ops.filter(pc.is_in(ops["kind"], value_set=once)).group_by("step")
        for row in stepped.aggregate([("rank", "count_distinct")]).to_pylist():
            finished[row["step"]] = row["rank_count_distinct"]
        # a step's window is that of its compute streams, see `window_of`
        spans = ops.filter(pc.equal(ops["stream"], COMPUTE_STREAM)).group_by("step")
        for row in spans.aggregate([("start_ns", "min"), ("end_ns", "max")]).to_pylist():
            lengths[row["step"]] = row["end_ns_max"] - row["start_ns_min"]
    complete = sorted(step for step, count in finished.items() if count == len(ranks))
    candidates = sorted(complete[1:] or complete, key=lambda step: (lengths.get(step, 0), step))
    return candidates[(len(candidates) - 1) // 2] if candidates else min(recorded_steps(recording), default=None)
