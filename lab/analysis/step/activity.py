"""What every rank does at one moment of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.prediction.replay.rows import StepRows
from engine.program.kinds import COLLECTIVE
from engine.recording.tables import Recording
from lab.analysis.step.idle import idle_spans
from lab.analysis.step.overlap import blocking
from lab.analysis.step.step_ops import step_ops, window_of


@dataclass(frozen=True)
class Activity:
    """What a rank's compute stream does. kind: the action's, "collective" inside a layer, or "idle".

    name: of the operation; for idle, what the rank waits for. inside: the action that a collective is part of.
    microbatch: -1 where there is none.
    """

    kind: str
    name: str
    inside: str = ""
    microbatch: int = -1
    axis: str = ""


def activities(recording: Recording, step: int, at_ns: int) -> dict[int, Activity]:
    """Each recorded rank's activity `at_ns` after the step's first start; a time outside the step counts as its end.

    An operation is at work from its start up to, not including, its end.
    """
    ops = step_ops(recording, step)
    start, end = window_of(ops)
    now = min(max(start + at_ns, start), end - 1)
    idle = {i.rank: i for i in idle_spans(ops) if i.start_ns <= now < i.end_ns}
    running = (ops.start <= now) & (now < ops.end)
    found = {}
    for rank, rows in ops.by_rank():
        if rank in idle:
            found[rank] = Activity("idle", idle[rank].why)
        else:
            found[rank] = _working(ops, np.flatnonzero(running[rows]) + rows.start)
    return found


def _working(ops: StepRows, rows: np.ndarray) -> Activity:
    """Of the rows that run now, the one the compute stream stands in: a collective inside an action comes first."""
    inside = [row for row in rows.tolist() if blocking(ops)[row]]
    action = next((row for row in rows.tolist() if ops.is_compute[row]), None)
    if inside:
        row = inside[0]
        part_of = "" if action is None else str(ops.name[action])
        return Activity(COLLECTIVE, str(ops.op[row]), part_of, int(ops.microbatch[row]), ops.axis[row])
    assert action is not None, "a rank that is not idle computes"
    return Activity(str(ops.kind[action]), str(ops.name[action]), "", int(ops.microbatch[action]))
