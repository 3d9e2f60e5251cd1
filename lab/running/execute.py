"""Runs a job from end to end: checks it once, refuses what cannot run here, and executes it."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.machine import free_memory
from lab.running.execution import Execution, OnProgress, reference_file
from lab.store.clusters import check_on, find_cluster
from lab.store.folder import RunInfo
from lab.store.store import Store
from lab.store.stored_run import StoredRun

if TYPE_CHECKING:
    from engine.job.job import Job
    from engine.program.program import Program
    from engine.program.schedules.text import Written

PROCESS_BYTES = 16_000_000
"""Memory of a rank's process that it shares with no other and the ledger does not count: measured (psutil's uss, torch
2.13, Linux) 9 to 13 MB when connected and 14 to 16 MB in training. torch itself is shared by all."""


@dataclass(frozen=True, kw_only=True)
class CheckedJob:
    """A job that may be run here, as `checked` or its second half makes it: nobody on its way needs to check it again.

    parity: whether it is compared with one process. program: what its ranks execute; None for what its plan compiles
    to.
    """

    job: Job
    parity: bool = True
    program: Program | None = None


def checked(
    job: Job, *, parity: bool = True, by_hand: Program | Written | None = None, store: Store | None = None
) -> CheckedJob:
    """Starts nothing. Raises `JobRefused` if the job breaks a rule or does not fit this machine.

    by_hand: a program or schedule to run in place of what the plan compiles to. Raises `ValueError` for one that cannot
    be read, `ProgramError`, one of these, for one that would not train the job.
    """
    from engine.job import rules

    rules.check(job)
    if job.hardware.cluster:
        check_on(job, find_cluster(job.hardware.cluster, store))
    return fitting_here(job, parity=parity, by_hand=by_hand, store=store)


def fitting_here(
    job: Job, *, parity: bool = True, by_hand: Program | Written | None = None, store: Store | None = None
) -> CheckedJob:
    """The rest of `checked`, for a job that obeys the rules: whether it fits this machine as it is now."""
    from engine.job import rules
    from engine.job.errors import JobRefused

    rules.check_here(job, bytes_needed(job, parity, store or Store()), free_memory())
    if by_hand is None:
        return CheckedJob(job=job, parity=parity)
    if job.fault.bug:
        raise JobRefused(f"bug={job.fault.bug} goes into what a plan compiles to: leave the bug or your own order out.")
    from engine.program.handwritten import checked_program

    return CheckedJob(job=job, parity=parity, program=checked_program(job, by_hand))


def bytes_needed(job: Job, parity: bool, store: Store) -> int:
    """What all processes of the run hold at most, together: its ranks and, what has to be made of them, the reference
    and its rounding floor.

    Raises `JobRefused` for a batch so large that the reference's step could not even be written down.
    """
    from engine.execution.reference import floor_path, other_order
    from engine.job import rules
    from engine.prediction.peak_memory import total_bytes

    needed = total_bytes(job) + job.world_size * PROCESS_BYTES
    if not parity:
        return needed
    kept = reference_file(job, store)
    if not kept.exists():
        rules.check_reference(job)
        needed += total_bytes(job.one_process()) + PROCESS_BYTES
    if not kept.exists() or not floor_path(kept).exists():
        needed += total_bytes(other_order(job)) + PROCESS_BYTES
    return needed


def run_job(
    job: Job,
    *,
    parity: bool = True,
    by_hand: Program | Written | None = None,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    store: Store | None = None,
    queued: RunInfo | None = None,
) -> StoredRun:
    """Checks a job, trains it on real processes and returns the finished run; see `checked` and `execute`."""
    began = time.perf_counter()
    found = checked(job, parity=parity, by_hand=by_hand, store=store)
    return execute(found, on_progress=on_progress, cancel=cancel, store=store, queued=queued, began=began)


def execute(
    run: CheckedJob,
    *,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    store: Store | None = None,
    queued: RunInfo | None = None,
    began: float | None = None,
) -> StoredRun:
    """Trains on real processes and returns the finished run.

    queued: a run whose folder is there already and whose turn it is; default: a new one. began: when it was asked for,
    by `time.perf_counter`; default: now.

    Raises `RunFailed` if a process fails, `RunCancelled` if `cancel` gets set, `StoreError` if the run folder cannot be
    written. However it ends, the folder says so and keeps the steps that were done.
    """
    from engine.program.compile import with_fault
    from engine.program.handwritten import checked_program

    began, store = began or time.perf_counter(), store or Store()
    program = run.program or with_fault(run.job, checked_program(run.job))
    _load()
    info = store.create(run.job, tuple(sys.argv), parity=run.parity) if queued is None else store.begin(queued)
    with store.executing(info.id):
        return Execution(run.job, program, run.parity, on_progress, store, info, began).run(cancel)


def _load() -> None:
    """Imports what the run will need, while torch loads in the process that will fork the ranks."""
    from engine.execution.session import PRELOAD
    from engine.processes.launch import warm

    warm(PRELOAD)
    import engine.recording.parquet  # noqa: F401
    import lab.analysis
    import lab.store.summary  # noqa: F401
