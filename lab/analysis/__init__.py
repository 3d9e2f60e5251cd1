"""What a recording says: bubble, idle time and its causes, overlap, memory, communication. Pure functions.

It takes a recording and its job, or anything with the shape of `recorded_run.RecordedRun`, and may import the engine
and the words of `lab.wording`, but no room of the lab. Start with `step/step_ops.py`, the table that the rest reads.
"""

from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.steps import recorded_steps
from lab.analysis.communication import bytes_between, communication, communication_matrix
from lab.analysis.ledger import LedgerRow, ledger
from lab.analysis.memory import memory_over_time, memory_peaks
from lab.analysis.step.activity import Activity, activities
from lab.analysis.step.idle import CAUSES, Idle, bubble, bubble_formula, idle_by_awaited, idle_by_cause, idle_spans
from lab.analysis.step.overlap import core_wait, overlap
from lab.analysis.step.prediction_error import Gap, Part, gap
from lab.analysis.step.step_ops import NoStep, rank_name, step_ops, step_window, typical_step
from lab.analysis.step.time_breakdown import PART_NAMES, PARTS, step_shares

__all__ = [
    "CAUSES",
    "PARTS",
    "PART_NAMES",
    "Activity",
    "Gap",
    "Idle",
    "LedgerRow",
    "NoStep",
    "Part",
    "StepRows",
    "activities",
    "bubble",
    "bubble_formula",
    "bytes_between",
    "communication",
    "communication_matrix",
    "core_wait",
    "gap",
    "idle_by_awaited",
    "idle_by_cause",
    "idle_spans",
    "ledger",
    "memory_over_time",
    "memory_peaks",
    "overlap",
    "rank_name",
    "recorded_steps",
    "step_ops",
    "step_shares",
    "step_window",
    "typical_step",
]
