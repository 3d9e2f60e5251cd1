"""A newcomer to each table, as somebody outside would add it: FLOPs a byte, mebibytes, and perplexity."""

from __future__ import annotations

import math

from engine.recording.columns import Column, add_column
from engine.recording.tables import MemoryRow, MetricRow, Op


def intensity(op: Op) -> float:
    """FLOPs for each byte touched (Williams, Waterman, Patterson 2009); 0 where none is."""
    return op.cost.flops / op.cost.touched_bytes if op.cost.touched_bytes else 0.0


def mebibytes(row: MemoryRow) -> float:
    return row.bytes / 2**20


def perplexity(row: MetricRow) -> float:
    return math.exp(row.loss)


add_column("ops", Column("intensity", float, intensity, default=-1.0))
add_column("memory", Column("mebibytes", float, mebibytes, default=-1.0))
add_column("metrics", Column("perplexity", float, perplexity, default=-1.0))
