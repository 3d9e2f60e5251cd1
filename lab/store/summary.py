"""The numbers of a run, under the names of the public contract (`summary.json`, `lab run --json`).

Bytes are integers, times are seconds, and what is not known is null. Definitions:

- bug, of runs with a fault that was put into them only: its name (`lab bugs`).
- parity compares the run with one process that trains the same model on the same batches; its fields and the rule are
  in `lab.verdict.rule.judged`.
- `seconds` of a step: last end − first start over all ranks. `tokens_per_second`: batch × seq ÷ seconds.
- bubble: idle ÷ total; `measured` on the clock, `replayed` with each block's forward as 1 and backward as 2
  units of time (1 and 1 if it is split) and everything else free, `formula` from the literature (of the job's own
  program, null where none is known).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lab.verdict import NOT_COMPARED, Distances, judged

if TYPE_CHECKING:
    from engine.job.job import Job
    from engine.program.program import Program
    from engine.recording.tables import Recording
    from lab.store.folder import RunInfo

MEMORY_KEYS = (
    "rank", "params", "grads", "optimizer", "activations_peak", "gathered_peak", "buffers_peak", "total_peak",
)  # fmt: skip

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the processes reported besides their recording. Without distances, parity was not asked for."""

    distances: Distances | None = None
    ready_s: float | None = None
    wall_s: float | None = None


def summarise(info: RunInfo, job: Job, program: Program, recording: Recording, outcome: Outcome | None = None) -> Row:
    """The summary of a run with whatever steps it got through."""
    outcome = outcome or Outcome()
    steps = step_rows(recording)
    summary: Row = {
        **identity(info, job),
        "parity": judged(outcome.distances) if outcome.distances else NOT_COMPARED,
        "steps": steps,
        **_measured(job, program, recording if steps else None),
        "time_to_ranks_ready_s": outcome.ready_s,
        "wall_s": outcome.wall_s,
    }
    found: Row = plain(summary)
    return found


def identity(info: RunInfo, job: Job) -> Row:
    """Which run it is, and what it ran on: the head of every summary."""
    plan, bug = job.plan, job.fault.bug
    return {
        "run": info.id,
        "status": info.status,
        "world_size": job.world_size,
        "backend": info.backend,
        "device": info.device,
        "schedule": plan.schedule,
        "mesh": dict(plan.degrees),
        **({"bug": bug} if bug else {}),
    }


def step_rows(recording: Recording) -> list[Row]:
    """One row a step."""
    keys = ("step", "loss", "grad_norm", "seconds", "tokens_per_second")
    return [{key: row[key] for key in keys} for row in recording.metrics.to_pylist()]


def _measured(job: Job, program: Program, recording: Recording | None) -> Row:
    """What the tables say, beside what the formulas say."""
    from engine.prediction.peak_memory import predicted_memory
    from engine.program.compile import compile_job
    from engine.program.dryrun import dry_run
    from lab import analysis

    bubble = analysis.bubble_formula(job) if program == compile_job(job) else None
    step = analysis.typical_step(recording) if recording else None
    return {
        "bubble": {
            "measured": None if recording is None or step is None else analysis.bubble(recording, job, step),
            "replayed": float(dry_run(program).bubble()),
            "formula": bubble,
        },
        "overlap": analysis.overlap(recording, step) if recording and step is not None else {},
        "memory": {
            "per_rank": [_memory(row) for row in analysis.memory_peaks(recording)] if recording else [],
            "predicted_per_rank": [_memory(row) for row in predicted_memory(job, program)],
        },
        "communication": communication(job, recording, step) if recording and step is not None else [],
    }


def _memory(row: Mapping[str, Any]) -> Row:
    return {key: int(row[key]) for key in MEMORY_KEYS}


def communication(job: Job, recording: Recording, step: int) -> list[Row]:
    """Bytes per step that the first rank of each axis sends, counted beside predicted."""
    from engine.cluster.operations import COPY
    from engine.job.mesh import mesh_of
    from engine.prediction.formulas import predicted_communication
    from lab import analysis

    predicted = predicted_communication(job)
    rows: list[Row] = []
    for row in analysis.communication(recording, mesh_of(job), step):
        expected = 0 if row["op"] == COPY else predicted.get((row["axis"], row["op"]))
        rows.append({**row, "predicted_bytes": None if expected is None else int(expected)})
    return rows


def plain(value: Any) -> Any:
    """`value` as JSON can say it: no NaN or infinity, no numpy numbers."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if hasattr(value, "item"):
        value = value.item()
    return value if isinstance(value, int) or math.isfinite(value) else None
