"""How long a pipeline takes, by schedule, from what its ranks do with one micro-batch and what a hop takes.

All arrays are [pipeline ranks, plans] or [plans]. Stages may differ: the slowest sets the pace, and every one is passed
once while the pipeline fills and drains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Lanes:
    """forward, backward: seconds of one micro-batch in all chunks of each rank; hop: of a message to the next rank.

    microbatches: m of each plan. chunks: v. overlap: whether messages travel under computing.
    """

    forward: Floats
    backward: Floats
    hop: Floats
    microbatches: Floats
    chunks: int
    overlap: bool = True

    @property
    def work(self) -> Floats:
        return self.forward + self.backward

    @property
    def chain(self) -> Floats:
        """One micro-batch all the way up and down, on its own."""
        return np.asarray(self.work.sum(axis=0) + 2 * self.hop[:-1].sum(axis=0))


def naive(lanes: Lanes) -> Floats:
    """One micro-batch after the other."""
    return lanes.microbatches * lanes.chain


def gpipe(lanes: Lanes) -> Floats:
    """The slowest stage sets the pace of the forwards, and then that of the backwards."""
    pace = lanes.forward.max(axis=0) + lanes.backward.max(axis=0)
    return np.asarray(lanes.chain + (lanes.microbatches - 1) * pace)


def one_f_one_b(lanes: Lanes) -> Floats:
    """(m−1) micro-batches at the pace of the slowest stage, and one all the way up and down.

    Rank z lets p−z micro-batches in at a time, so once these are out, p−z more take at least the way up and down from
    there: with as many in flight as stages, nothing hides the hops.
    """
    p = len(lanes.work)
    pace = lanes.work.max(axis=0)
    onward = np.cumsum((lanes.work + 2 * lanes.hop)[::-1], axis=0)[::-1] - 2 * lanes.hop[-1:]
    window = (onward / (p - np.arange(p))[:, None]).max(axis=0)
    late = np.maximum(lanes.microbatches - p, 0) * np.maximum(window - pace, 0)
    return np.asarray(lanes.chain + (lanes.microbatches - 1) * pace + late)


def interleaved(lanes: Lanes) -> Floats:
    """The same with stages v times smaller to fill: m·v chunks at the pace of the slowest rank (Narayanan et al. 2021).

    Messages are asked for one computation ahead, so hops hide under a chunk each, but for the filling and draining,
    where micro-batches go around v times.
    """
    p, v, m = len(lanes.work), lanes.chunks, lanes.microbatches
    hop = lanes.hop.max(axis=0)
    hidden = lanes.work.max(axis=0) / v if lanes.overlap else 0.0
    steady = np.maximum(2 * hop - hidden, 0) * v * np.maximum(m - p, 0)
    fill = (lanes.work.sum(axis=0) - lanes.work.max(axis=0)) / v + 2 * hop * (v * p - 1)
    return np.asarray(m * lanes.work.max(axis=0) + fill + steady)


PIPELINE_SECONDS: dict[str, Callable[[Lanes], Floats]] = {
    "naive": naive,
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
}
"""Seconds from the first forward to the last backward. A new schedule needs a line here and one in `plans.SEARCHED`."""
