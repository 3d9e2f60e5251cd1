"""Arguments of the functions that learners call, checked in words; Python would speak of attributes and types."""

from __future__ import annotations

import math
import operator
from pathlib import Path
from typing import SupportsIndex

from engine.job.errors import JobRefused, told


def whole(name: str, value: object, least: int = 0) -> int:
    """A whole number from `least` on, numpy's included. Raises `JobRefused`."""
    try:
        found = operator.index(value) if isinstance(value, SupportsIndex) and not isinstance(value, bool) else None
    except TypeError:  # an array or a tensor has an index only if it is a single whole number
        found = None
    if found is None:
        raise JobRefused(f"{name}={told(value)} is not valid: use a whole number.")
    if found < least:
        raise JobRefused(f"{name}={told(found)} is too small: use {least} or more.")
    return found


def number(name: str, value: object) -> float:
    """A finite number from 0 on. Raises `JobRefused`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise JobRefused(f"{name}={told(value)} is not valid: use a number, 0 or more.")
    return float(value)


def one_of(name: str, value: object, kinds: tuple[type, ...], words: str) -> None:
    """Raises `JobRefused` for anything else; words: what may be used."""
    if not isinstance(value, kinds):
        raise JobRefused(f"{name}={told(value)} is not valid: use {words}.")


def cluster_name(value: object) -> None:
    one_of("cluster", value, (str, Path), "the name of a cluster, or the path of a TOML file")
