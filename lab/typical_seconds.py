"""How long a step of a run takes: one number for lists, comparisons and figures. Loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def typical_seconds(steps: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds of a typical step, as `lab.analysis.typical_step` chooses one: the median, the first left out as warm-up,
    of two in the middle the shorter. None without a step.

    steps: rows of a summary.
    """
    times = sorted(row["seconds"] for row in steps[1:] or steps)
    return float(times[(len(times) - 1) // 2]) if times else None
