"""Who waits most in a step, and for what: one sentence, read from the recording."""

from __future__ import annotations

from lab.analysis import CAUSES, PART_NAMES
from lab.analysis.recorded_run import HasRecording
from lab.analysis.step.step_ops import rank_name
from lab.analysis.step.time_shares import time_shares
from lab.wording import percent


def waits_most(run: HasRecording, step: int) -> str:
    """Names the rank that stood idle longest in `step`, its idle ÷ total, and the largest cause. "" if none did.

    A rank that stands for others is named with how many. Raises `NoStep` for a step that was not recorded.
    """
    shares = time_shares(run.recording, step)
    idle = {rank: sum(row[cause] for cause in CAUSES) for rank, row in shares.items()}
    most = max(idle, key=lambda rank: idle[rank])
    if not idle[most]:
        return ""
    row = shares[most]
    cause = max(CAUSES, key=lambda name: row[name])
    whole = percent(idle[most] / sum(row.values()))
    name = rank_name(run.recording, most)
    return f"Idle longest: {name}, {whole} of the step, {percent(row[cause] / idle[most])} of that {PART_NAMES[cause]}."
