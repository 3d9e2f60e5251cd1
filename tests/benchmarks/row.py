"""One line of the table of benchmarks: what took how long here, and how long the same takes a peer in the same run."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """Seconds of rounds that were measured in turn: ours, the peer's, ours, the peer's…"""

    what: str
    peer: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @classmethod
    def of(cls, what: str, peer: str, pairs: Sequence[tuple[float, float]]) -> Row:
        return cls(what, peer, tuple(ours for ours, _ in pairs), tuple(theirs for _, theirs in pairs))

    @property
    def ratio(self) -> float:
        """Median of ours ÷ theirs, round by round: below 1, we are faster."""
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def spread(self) -> tuple[float, float]:
        """The lowest and the highest ratio of a round."""
        ratios = [a / b for a, b in zip(self.ours, self.theirs, strict=True)]
        return min(ratios), max(ratios)

    def cells(self) -> tuple[str, ...]:
        low, high = self.spread
        ours, theirs = _seconds(statistics.median(self.ours)), _seconds(statistics.median(self.theirs))
        return self.what, self.peer, ours, theirs, f"{self.ratio:.2f}", f"{low:.2f}–{high:.2f}"


HEADS = ("what", "peer", "ours", "peer's", "ours ÷ peer's", "of the rounds")


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"
