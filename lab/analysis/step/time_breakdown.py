"""What a step's time was spent on: every rank's whole step in parts, work by kind and idle time by cause."""

from __future__ import annotations

from engine.prediction.replay.rows import StepRows
from engine.program.kinds import KINDS
from engine.recording.tables import Recording
from lab.analysis.step.idle import CAUSES, idle_spans
from lab.analysis.step.overlap import computing_ns, core_waits_ns, layer_ns
from lab.analysis.step.step_ops import all_ranks_ns, step_ops

WORK = ("forward", "recompute", "backward", "step")
PARTS = (*WORK, "layer", "core", *CAUSES)
"""Work by kind; collectives inside layers; waiting for a core while it looks busy; idle time by cause."""

PART_NAMES = {
    "forward": "forward",
    "recompute": "recomputing activations",
    "backward": "backward",
    "step": "optimizer step",
    "layer": "collectives inside layers",
    "core": "looking busy, but waiting for a core",
    "dependency": "waiting for another rank to compute",
    "transfer": "waiting for bytes on their way",
    "straggler": "waiting for a rank to join a collective",
    "done": "having nothing left to do",
    "host": "between operations (Python, or no free core)",
}


def step_shares(recording: Recording, step: int) -> dict[str, float]:
    """Share of all ranks' time in a step by part (`PARTS`); they add up to 1, those of `CAUSES` to the bubble.

    A recorded rank counts for all it stands for. Raises `NoStep` if the step is not there.
    """
    ops = step_ops(recording, step)
    whole = all_ranks_ns(ops) or 1
    parts = step_parts(ops)
    return {name: sum(parts[rank][name] * ops.weight[rank] for rank in ops.ranks) / whole for name in PARTS}


def step_parts(ops: StepRows) -> dict[int, dict[str, int]]:
    """Rank → ns of each part; they add up to the step's length."""
    found = {rank: _work(ops, rows) for rank, rows in ops.by_rank()}
    for idle in idle_spans(ops):
        found[idle.rank][idle.cause] += idle.end_ns - idle.start_ns
    return found


def _work(ops: StepRows, rows: slice) -> dict[str, int]:
    found = dict.fromkeys(PARTS, 0)
    waited = core_waits_ns(ops, rows)
    for kind, computing in computing_ns(ops, rows).items():
        found[KINDS[kind].work] += computing - waited[kind]
    found["layer"] = layer_ns(ops, rows)
    found["core"] = sum(waited.values())
    return found
