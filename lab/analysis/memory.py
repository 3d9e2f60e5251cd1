"""What each rank held, in bytes."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from engine.recording import CATEGORIES, Recording


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
    ranks = np.unique(recording.memory["rank"].to_numpy())
    return [_peaks(recording, int(rank)) for rank in ranks]


def _peaks(recording: Recording, rank: int) -> MemoryPeaks:
    _, held = memory_over_time(recording, rank)
    most, last = (dict(zip(CATEGORIES, map(int, row), strict=True)) for row in (held.max(axis=1), held[:, -1]))
    return MemoryPeaks(
        rank=rank,
        params=last["params"],
        grads=last["grads"],
        optimizer=last["optimizer"],
        activations_peak=most["activations"],
        gathered_peak=most["gathered"],
        buffers_peak=most["buffers"],
        total_peak=int(held.sum(axis=0).max()),
    )


def memory_over_time(recording: Recording, rank: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(times in ns, bytes[category, time]) of a rank; bytes hold from their time to the next.

    Rows of one instant count together, so bytes that move from one category to another are never counted
    twice.
    """
    table = recording.memory
    mine = table["rank"].to_numpy() == rank
    time = table["time_ns"].to_numpy()[mine]
    order = np.argsort(time, kind="stable")
    time, value = time[order], table["bytes"].to_numpy()[mine][order]
    category = table["category"].to_numpy(zero_copy_only=False)[mine][order]
    held = np.stack([_held(value, category == name) for name in CATEGORIES])
    last_of_its_time = np.append(np.diff(time) > 0, True)[: len(time)]
    return time[last_of_its_time], held[:, last_of_its_time]


def _held(value: NDArray[np.int64], mine: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The latest value of one category after every row; 0 before its first."""
    latest = np.maximum.accumulate(np.where(mine, np.arange(len(value)), -1))
    return np.where(latest >= 0, value[np.maximum(latest, 0)], 0).astype(np.int64)
