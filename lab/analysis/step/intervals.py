"""Sets of time, as arrays of [start, end) rows in ns: merging, measuring and set operations, vectorised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.int64]  # shape (n, 2)

NOTHING: Spans = np.empty((0, 2), np.int64)


def spans(start: NDArray[np.int64], end: NDArray[np.int64]) -> Spans:
    """Merged spans of the given rows: sorted, disjoint, without empty ones."""
    return _where([np.stack([start, end], 1).astype(np.int64)], lambda inside: inside[0])


def length(of: Spans) -> int:
    """Total ns in merged spans."""
    return int((of[:, 1] - of[:, 0]).sum())


def both(a: Spans, b: Spans) -> Spans:
    """Time in a and in b."""
    return _where([a, b], lambda inside: inside[0] & inside[1])


def either(a: Spans, b: Spans) -> Spans:
    """Time in a or in b."""
    return _where([a, b], lambda inside: inside[0] | inside[1])


def without(a: Spans, b: Spans) -> Spans:
    """Time in a that is not in b."""
    return _where([a, b], lambda inside: inside[0] & ~inside[1])


def covered(of: Spans, edges: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
    """ns of merged spans inside each cell between consecutive `edges`."""
    if not len(of):
        return np.zeros(len(edges) - 1)
    before = np.concatenate([[0], np.cumsum(of[:, 1] - of[:, 0])])
    # time covered up to t grows along each span and is flat between two spans
    passed = np.interp(edges, of.ravel(), np.stack([before[:-1], before[1:]], 1).ravel())
    return np.diff(passed)


def _where(sets: list[Spans], keep: Callable[[list[NDArray[np.bool_]]], NDArray[np.bool_]]) -> Spans:
    """The time where `keep` holds for the truth of "inside set i": sweeps over all starts and ends once."""
    times = np.concatenate([s.ravel() for s in sets])
    if not len(times):
        return NOTHING
    order = np.argsort(times, kind="stable")
    owner = np.repeat(np.arange(len(sets)), [s.size for s in sets])[order]
    change = np.concatenate([np.tile([1, -1], len(s)) for s in sets])[order]
    inside = [np.cumsum(np.where(owner == i, change, 0)) > 0 for i in range(len(sets))]
    times, wanted = times[order], keep(inside)
    last_of_its_time = np.append(np.diff(times) > 0, True)  # what holds after all edges at that instant
    times, wanted = times[last_of_its_time], wanted[last_of_its_time]
    turns = np.flatnonzero(np.diff(np.concatenate([[False], wanted])))
    found: Spans = times[turns].reshape(-1, 2).astype(np.int64)
    return found
