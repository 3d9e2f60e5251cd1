"""On which track of a viewer a slice goes: one for each rank and stream, and more where a stream has several under way.

Viewers want the slices of a track to nest; operations of one stream overlap as they like (three gradient buckets in
flight, receives posted early). So the first track of a stream takes what begins when it is free, the second what
begins while the first is busy, and so on: no two slices of a track overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from engine.prediction.replay.rows import Numbers, StepRows
from engine.program.streams import STREAMS

STEPS = "steps"
"""The topmost track, which holds the marks of the steps; below it those of `STREAMS`."""


@dataclass(frozen=True)
class Track:
    """lane: 0 for the first of a stream."""

    rank: int
    stream: str
    lane: int

    @property
    def name(self) -> str:
        return f"{self.stream} {self.lane + 1}" if self.lane else self.stream

    @property
    def order(self) -> int:
        """Its place among the tracks of its rank."""
        return 1000 * (STEPS, *STREAMS.names).index(self.stream) + self.lane


@dataclass
class Tracks:
    """Deals out the tracks of a run, slice by slice, in the order in which the slices of a stream begin."""

    _busy_until: dict[tuple[int, str], list[int]] = field(default_factory=dict)

    def place(self, rank: int, stream: str, start: int, end: int) -> Track:
        """The first track that is free at `start`, kept until `end`. Even an empty slice has a moment of its own, so
        that no two of a track begin at once.
        """
        lanes = self._busy_until.setdefault((rank, stream), [])
        lane = next((i for i, until in enumerate(lanes) if until <= start), len(lanes))
        if lane == len(lanes):
            lanes.append(0)
        lanes[lane] = max(end, start + 1)
        return Track(rank, stream, lane)


def in_order_of_start(ops: StepRows, start: Numbers) -> Iterator[int]:
    """The rows of a step, rank by rank, by when they begin."""
    for _, rows in ops.by_rank():
        yield from (np.argsort(start[rows], kind="stable") + rows.start).tolist()
