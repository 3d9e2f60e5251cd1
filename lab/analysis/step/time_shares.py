"""Where the time of each rank went in a step."""

from __future__ import annotations

from engine.prediction.replay.rows import StepRows
from engine.recording.tables import Recording
from lab.analysis.step.idle import idle_by_cause
from lab.analysis.step.intervals import length
from lab.analysis.step.overlap import computing_spans, core_wait_ns, layer_ns
from lab.analysis.step.step_ops import step_ops


def time_shares(recording: Recording, step: int) -> dict[int, dict[str, float]]:
    """Seconds of each rank in a step: computing (waiting for a core apart), in collectives inside layers, and
    idle by cause.
    """
    ops = step_ops(recording, step)
    idle = idle_by_cause(recording, step)
    return {rank: {**_working(ops, rows), **idle[rank]} for rank, rows in ops.by_rank()}


def _working(ops: StepRows, rows: slice) -> dict[str, float]:
    layer, core = layer_ns(ops, rows), core_wait_ns(ops, rows)
    computing = length(computing_spans(ops, rows)) - core
    return {"computing": computing / 1e9, "core": core / 1e9, "layer": layer / 1e9}
