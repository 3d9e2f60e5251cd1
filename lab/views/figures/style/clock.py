"""The axis of time: figures count in milliseconds, and long steps are labelled in seconds."""

from __future__ import annotations

import math
from typing import Any

LONG = 10_000.0  # milliseconds from which seconds are easier to read
_TICKS = 6


def time_axis(end: float, tail: str = "") -> dict[str, Any]:
    """Title and labels of an axis in milliseconds up to `end`. tail: what follows the unit in the title."""
    if end < LONG:
        return {"title_text": f"ms{tail}"}
    size = 10 ** math.floor(math.log10(end / _TICKS))
    step = next(size * n for n in (1, 2, 5, 10) if end / (size * n) <= _TICKS)
    at = [step * i for i in range(int(end / step) + 1)]
    return {"title_text": f"seconds{tail}", "tickvals": at, "ticktext": [f"{t / 1000:g}" for t in at]}
