"""What each rank held, in bytes."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.recording.tables import CATEGORIES, Recording

Column = NDArray[np.int64]


class MemoryPeaks(TypedDict):
    rank: int
    params: int
    grads: int
    optimizer: int
    activations_peak: int
    gathered_peak: int
    buffers_peak: int
    total_peak: int


KEY = {"params": "params", "grads": "grads", "optimizer": "optimizer"} | {
    name: f"{name}_peak" for name in ("activations", "gathered", "buffers")
}
"""Category → its key in the summary."""


def memory_peaks(recording: Recording) -> list[MemoryPeaks]:
    """Bytes each rank held over the whole run, a row per rank.

    params, grads, optimizer: held at the end. activations_peak, gathered_peak, buffers_peak: the most of
    that category at any time. total_peak: the most of all categories together at any one time, so at most
    the sum of the peaks.
    """
    last: dict[int, Column] = {}
    most: dict[int, Column] = {}
    total: dict[int, int] = {}
    for batch in recording.memory_batches():
        for rank in np.unique(batch["rank"].to_numpy()).tolist():
            before = last.get(rank, np.zeros(len(CATEGORIES), np.int64))
            _, held = _over_time(batch, rank, before)
            last[rank] = held[:, -1]
            most[rank] = np.maximum(most.get(rank, 0), held.max(axis=1))
            total[rank] = max(total.get(rank, 0), int(held.sum(axis=0).max()))
    return [_peaks(rank, last[rank], most[rank], total[rank]) for rank in sorted(last)]


def _peaks(rank: int, last: Column, most: Column, total: int) -> MemoryPeaks:
    at_end, at_most = (dict(zip(CATEGORIES, values.tolist(), strict=True)) for values in (last, most))
    return MemoryPeaks(
        rank=rank,
        params=at_end["params"],
        grads=at_end["grads"],
        optimizer=at_end["optimizer"],
        activations_peak=at_most["activations"],
        gathered_peak=at_most["gathered"],
        buffers_peak=at_most["buffers"],
        total_peak=total,
    )


def memory_over_time(recording: Recording, rank: int) -> tuple[Column, NDArray[np.int64]]:
    """(times in ns, bytes[category, time]) of a rank; bytes hold from their time to the next.

    Rows of one instant count together, so bytes that move from one category to another are never counted
    twice.
    """
    return _over_time(recording.memory, rank, np.zeros(len(CATEGORIES), np.int64))


def _over_time(rows: pa.Table, rank: int, before: Column) -> tuple[Column, NDArray[np.int64]]:
    """See `memory_over_time`. before: bytes of each category that are held when the rows begin."""
    mine = rows.filter(pc.equal(rows["rank"], rank)).sort_by("time_ns")
    time, value = mine["time_ns"].to_numpy(), mine["bytes"].to_numpy()
    held = np.stack(
        [
            _held(value, pc.equal(mine["category"], name).to_numpy(), int(first))
            for name, first in zip(CATEGORIES, before, strict=True)
        ]
    )
    last_of_its_time = np.append(np.diff(time) > 0, True)[: len(time)]
    return time[last_of_its_time], held[:, last_of_its_time]


def _held(value: Column, mine: NDArray[np.bool_], before: int) -> Column:
    """The latest value of one category after every row; `before` until its first."""
    latest = np.maximum.accumulate(np.where(mine, np.arange(len(value)), -1))
    return np.where(latest >= 0, value[np.maximum(latest, 0)], before).astype(np.int64)
