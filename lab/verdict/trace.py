"""One quantity along the training: how far the run is from one process, and what it is allowed to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Number = float | None


@dataclass(frozen=True)
class Trace:
    """quantity: loss, grad_norm or weights. By step: off_by, |Δ| relative to one process (of weights: to the model's
    largest); floor, the largest that the other order of summation was off until then, None if that was not measured;
    limit, what is allowed. unit, tensor, ranks: of weights, whose.
    """

    quantity: str
    steps: tuple[int, ...]
    off_by: tuple[float, ...]
    floor: tuple[Number, ...]
    limit: tuple[float, ...]
    unit: str = ""
    tensor: str = ""
    ranks: tuple[int, ...] = ()

    @property
    def worst(self) -> int:
        """Where it comes closest to its limit, or is furthest beyond."""
        return max(range(len(self.steps)), key=self.share)

    def share(self, i: int) -> float:
        """|Δ| ÷ what is allowed; infinite for what is no number."""
        value = self.off_by[i]
        return math.inf if math.isnan(value) else value / self.limit[i]

    def first_beyond(self, limit: float | None = None) -> int | None:
        """The first place whose |Δ| is more than is allowed, or than `limit`."""
        return next(
            (i for i, value in enumerate(self.off_by) if not value <= (self.limit[i] if limit is None else limit)), None
        )

    def until(self, step: int | None) -> Trace:
        """What was before a step; all if that is None."""
        kept = len(self.steps) if step is None else sum(at < step for at in self.steps)

        def cut(values: Sequence[float]) -> tuple[float, ...]:
            return tuple(values[:kept])

        return Trace(
            self.quantity, self.steps[:kept], cut(self.off_by), self.floor[:kept], cut(self.limit),
            self.unit, self.tensor, self.ranks[:kept],
        )  # fmt: skip
