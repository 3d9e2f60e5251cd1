"""The part of the step that a timeline shows, in the address: `window=2.5-40` is from 2.5 to 40 ms."""

from __future__ import annotations

import math
import re

from dashboard.address import follow, tell

Window = tuple[float, float]
_TEXT = re.compile(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")


def from_address() -> Window | None:
    """The window of a link that was just opened; None if the address says nothing new, or nothing sensible."""
    return parsed(follow("window") or "")


def to_address(window: Window | None) -> None:
    tell("window", "" if window is None else written(window))


def written(window: Window) -> str:
    return f"{window[0]:.4f}".rstrip("0").rstrip(".") + "-" + f"{window[1]:.4f}".rstrip("0").rstrip(".")


def parsed(text: str) -> Window | None:
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    start, end = float(found[1]), float(found[2])
    return (start, end) if math.isfinite(end) and start < end else None
