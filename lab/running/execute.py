"""Runs a job from end to end: refuses what cannot run here, checks its program, and executes it."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from lab.running.execution import Execution, OnProgress, reference_file
from lab.store.clusters import check_on, find_cluster
from lab.store.folder import RunInfo
from lab.store.store import Store
from lab.store.stored_run import StoredRun

if TYPE_CHECKING:
    from engine.job.job import Job
    from engine.program.program import Program

PROCESS_BYTES = 16_000_000
"""Memory of a rank's process that it shares with no other and the ledger does not count: measured (psutil's uss, torch
2.13, Linux) 9 to 13 MB when connected and 14 to 16 MB in training. torch itself is shared by all, from the nursery."""


def refuse(job: Job, *, parity: bool = True, store: Store | None = None) -> None:
    """Raises `JobRefused` if the job breaks a rule or does not fit this machine. Starts nothing."""
    from engine.job import rules

    rules.check(job)
    if job.hardware.cluster:
        check_on(job, find_cluster(job.hardware.cluster, store))
    import psutil

    rules.check_here(job, bytes_needed(job, parity, store or Store()), psutil.virtual_memory().available)


def bytes_needed(job: Job, parity: bool, store: Store) -> int:
    """What all processes of the run hold at most, together: its ranks and, if it has to be made, the reference.

    Raises `JobRefused` for a batch so large that the reference's step could not even be written down.
    """
    from engine.job import rules
    from engine.prediction.peak_memory import total_bytes

    needed = total_bytes(job) + job.world_size * PROCESS_BYTES
    if parity and not reference_file(job, store).exists():
        rules.check_reference(job)
        needed += total_bytes(job.one_process()) + PROCESS_BYTES
    return needed


def run_job(
    job: Job,
    *,
    parity: bool = True,
    program: Program | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    store: Store | None = None,
    queued: RunInfo | None = None,
) -> StoredRun:
    """Trains `job` on real processes and returns the finished run.

    program: what the ranks execute, for one written by hand; default: what the plan compiles to. Either is
    checked. queued: a run whose folder is there already and whose turn it is; default: a new one.

    Raises `JobRefused` before anything is started or written; `RunFailed` if a process fails, `RunCancelled`
    if `cancel` gets set, `StoreError` if the run folder cannot be written. However it ends, the folder says
    so and keeps the steps that were done.
    """
    began = time.perf_counter()
    store = store or Store()
    refuse(job, parity=parity, store=store)
    chosen = checked_program(job, program)
    _load()
    info = store.create(job, tuple(sys.argv), parity=parity) if queued is None else store.begin(queued)
    with store.executing(info.id):
        return Execution(job, chosen, parity, on_progress, store, info, began).run(cancel)


def _load() -> None:
    """Imports what the run will need, while torch loads in the process that will fork the ranks."""
    from engine.processes.launch import warm

    warm()
    import engine.recording.parquet  # noqa: F401
    import lab.analysis
    import lab.store.summary  # noqa: F401


def checked_program(job: Job, program: Program | None = None) -> Program:
    """The program to run. Raises `ProgramError` if it would not train the job."""
    from engine.program.checks.check import check_program
    from engine.program.compile import compile_job

    chosen = program or compile_job(job)
    check_program(chosen, job)
    return chosen
