"""Runs in memory from made-up recordings, with the summary that a real run of them would have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from engine.job.job import Job
from engine.program.compile import compile_job
from engine.recording.columns import table_of
from engine.recording.tables import MetricRow, Recording
from lab.facade import Run
from lab.store.folder import Entry
from lab.store.store import Store, new_info
from lab.store.summary import Outcome, summarise
from tests.lab.synthetic import LIFELIKE, Costs, synthetic

NOWHERE = Path("/nonexistent")


def made_run(
    job: Job, costs: Costs = LIFELIKE, *, seconds: Sequence[float] = (0.2, 0.1, 0.1), losses: Sequence[float] = (),
    reference: Sequence[float] = (), recording: Recording | None = None,
) -> Run:  # fmt: skip
    """A finished run whose steps took `seconds`. losses: 5.5, 5.2, … by default; reference: the losses by default."""
    loss = losses or [5.5 - 0.3 * step for step in range(len(seconds))]
    rows = [
        MetricRow(step, loss[step], 1.0, took, 1024 / took, (reference or loss)[step])
        for step, took in enumerate(seconds)
    ]
    found = recording or synthetic(job, costs, len(seconds))
    found = replace(found, metrics=table_of("metrics", rows))
    program, info = compile_job(job), new_info("made", job, (), datetime.now(UTC), status="finished")
    run = Run(Entry(info, {}), Store(NOWHERE))
    run.__dict__.update(
        job=job, program=program, recording=found, summary=summarise(info, job, program, found, Outcome())
    )
    return run
