"""Every change of a pipeline rank's memory, at a moment between the rows it comes between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.prediction.peak_memory import Change
from engine.prediction.rehearsal.lane_rows import TICK, Layout, Mask, Numbers
from engine.prediction.replay.rows import whole
from engine.recording.columns import COLUMNS, table_of_arrays
from engine.recording.tables import CATEGORIES, MemoryRow

SET_UP = -1
"""As the position of a change: before the first action."""
_BUILT_IN = MemoryRow._fields


def shared_memory(layout: Layout, state: Mapping[str, int], changes: Iterable[Change]) -> dict[str, pa.Array]:
    """The columns of the memory table that are alike on every rank of the pipeline rank.

    state: bytes by category, held from the set-up on.
    """
    events = [*((SET_UP, category, nbytes, False) for category, nbytes in state.items()), *changes]
    positions, categories, nbytes, after = zip(*events, strict=True)
    position, code = np.array(positions, np.int64), np.array([CATEGORIES.index(name) for name in categories])
    return {
        "step": whole(np.where(position == SET_UP, -1, 0)),
        "time_ns": whole(_moments(layout, position, np.array(after, bool))),
        "category": pa.array(CATEGORIES).take(whole(code)),
        "bytes": whole(_held(code, np.array(nbytes, np.int64))),
    }


def _held(code: NDArray[np.int64], change: Numbers) -> Numbers:
    """What the changed category holds after each change."""
    held = np.zeros(len(code), np.int64)
    for which in range(len(CATEGORIES)):
        held[code == which] = np.cumsum(change[code == which])
    return held


def _moments(layout: Layout, position: Numbers, after: Mask) -> Numbers:
    """The moment of each change: before the rows of the action at `position` of the program, or after them."""
    acts = np.array([i for i, part in enumerate(layout.script) if part.awaits < 0] + [len(layout.script)])
    at = acts[np.minimum(position, len(acts) - 1)]  # its place in the script, where waits stand between
    begin, end = layout.begins[at], layout.begins[np.minimum(at + 1, len(layout.script))]
    moments = TICK * np.where(after, end, begin) - TICK // 4
    moments[position == SET_UP] = -TICK
    place = np.arange(len(moments))
    apart = np.maximum.accumulate(moments - place) + place  # changes of one moment keep their order
    return np.where(position == SET_UP, -TICK, apart)


def memory_of(shared: dict[str, pa.Array], rank: int) -> pa.Table:
    """The changes as `rank` writes them."""
    columns = shared | {"rank": whole(np.full(len(shared["bytes"]), rank))}
    for column in COLUMNS["memory"]:
        if column.name not in columns:  # it was plugged in
            rows = [MemoryRow(*row) for row in zip(*(columns[name].to_pylist() for name in _BUILT_IN), strict=True)]
            columns |= {column.name: pa.array([column.of(row) for row in rows], column.arrow)}
    return table_of_arrays("memory", columns)
