"""The steps of a recording: which there are, and one of them as `StepRows`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.cluster.operations import OPERATIONS
from engine.prediction.replay.rows import StepRows, whole
from engine.program.kinds import kind_of_row
from engine.program.streams import STREAMS
from engine.recording.tables import Recording


def step_rows(recording: Recording, step: int, stands_for: Mapping[int, int] | None = None) -> StepRows:
    """The rows of `step`. Raises `ValueError` if there are none."""
    rows = recording.ops_of(step)
    if not rows.num_rows:
        raise ValueError(f"step {step} was not recorded: there are steps {recorded_steps(recording)}.")
    return StepRows(in_order(rows).combine_chunks(), recording.stands_for if stands_for is None else stands_for)


def check_words(rows: pa.Table) -> None:
    """Raises `Unknown` if any kind, stream or operation is one that nobody here knows, for it would be left out."""
    for kind in pc.unique(rows["kind"]).to_pylist():
        kind_of_row(kind)
    for stream in pc.unique(rows["stream"]).to_pylist():
        STREAMS[stream]
    for op in pc.unique(rows["op"]).to_pylist():
        if op:
            OPERATIONS[op]


def in_order(rows: pa.Table) -> pa.Table:
    """The rows by rank, and those of a rank by position. Raises `Unknown`, see `check_words`."""
    check_words(rows)
    rank, seq = (np.asarray(rows[name].to_numpy(), np.int64) for name in ("rank", "seq"))
    order = np.lexsort((seq, rank))
    return rows if (np.diff(order) == 1).all() else rows.take(whole(order))


def step_to_show(recording: Recording) -> int:
    """The first step after the warm-up, if several were recorded. Raises `ValueError` if there is none at all."""
    steps = recorded_steps(recording)
    if not steps:
        raise ValueError("nothing was recorded: replay a run that completed a step.")
    return steps[min(1, len(steps) - 1)]


def recorded_steps(recording: Recording) -> list[int]:
    """Every step with at least one operation."""
    return sorted({step for batch in recording.ops_batches(["step"]) for step in pc.unique(batch["step"]).to_pylist()})
