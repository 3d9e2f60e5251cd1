"""The queue of launches: runs that a dashboard or a notebook wishes, carried out one after the other.

Who carries them out is a process of its own, the worker (`lab.launcher.worker`), so a run goes on when the server that
wished it ends. Nobody has to watch the worker: whoever adds or looks makes sure that there is one if there is work,
and says of the launches of a worker that died what became of them.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.launcher.table import Launch, LaunchTable, State
from lab.launcher.worker_lock import LOG, Seat, end_worker
from lab.store.folder import read_entry
from lab.store.store import RunNotFound, Store, StoreError, settle
from lab.wording import one_line

if TYPE_CHECKING:
    from engine.job.job import Job

__all__ = ["Launch", "LaunchQueue", "State"]

IDLE = 120.0
"""Seconds that a worker stays when there is nothing to do, with torch loaded for the next launch."""
ANSWER_WITHIN = 5.0
"""Seconds that a worker has to end a launch that is cancelled; then it is killed."""
_LOOK = 0.1  # seconds between looks while waiting

STOPPED = "stopped by the user"
UNANSWERED = "stopped by the user; the process that carried it out did not answer and was ended"
KILLED = "the process that carried it out was killed, and the run with it"


class LaunchQueue:
    """The launches of a store. Several processes and threads may use it at once.

    idle: after how many seconds without work a worker that is started from here leaves. Every method raises
    `StoreError`, in one sentence, if the files in the store's root cannot be used.
    """

    def __init__(self, store: Store | None = None, idle: float = IDLE, answer_within: float = ANSWER_WITHIN) -> None:
        self.store = store or Store()
        self._table = LaunchTable(self.store.root)
        self._idle, self._answer_within = idle, answer_within

    def add(self, job: Job, parity: bool = True, name: str = "") -> Launch:
        """Puts `job` at the end of the queue, and sees to it that somebody carries it out. name: of its run too.

        Raises `JobRefused` for a job that cannot run here; then nothing was written.
        """
        from lab.running.execute import refuse
        from lab.store.notes import LONGEST_NAME

        job = _found_anywhere(job)
        refuse(job, parity=parity, store=self.store)
        number = self._table.add(job, parity, one_line(name)[:LONGEST_NAME])
        with suppress(StoreError):  # it is in the queue; whoever looks next tries again, and hears the trouble
            self.ensure_worker()
        return self._get(number)

    def launches(self, limit: int = 50) -> list[Launch]:
        """The newest first."""
        self.ensure_worker()
        return self._table.newest(limit)

    def active(self) -> list[Launch]:
        """What is under way or waits, in the order in which it comes."""
        self.ensure_worker()
        return self._table.active()

    def get(self, number: int) -> Launch:
        """Raises `RunNotFound` if there is no such launch."""
        self.ensure_worker()
        return self._get(number)

    def carrying_out(self, run_id: str) -> Launch | None:
        """The launch under way whose run this is; None if the queue does not carry it out."""
        self.ensure_worker()
        return self._table.carrying_out(run_id)

    def cancel(self, number: int) -> Launch:
        """Ends a launch: at once if it still waits, within about a second if it is under way; see `wait`.

        One that has ended stays as it is. Raises `RunNotFound` if there is no such launch.
        """
        self._table.cancel(number)
        return self.get(number)

    def wait(self, number: int, seconds: float) -> Launch:
        """The launch when it has ended, or as it is after so many seconds."""
        deadline = time.monotonic() + seconds
        while (launch := self.get(number)).active and time.monotonic() < deadline:
            time.sleep(_LOOK)
        return launch

    def ensure_worker(self) -> bool:
        """Starts a worker if launches wait and there is none; whether one now carries out what there is to do.

        Cheap enough for every look at the queue. It also ends a worker that does not answer, and settles what a dead
        one left behind.
        """
        if not self._table.any_active():
            return False
        for worker in self._table.overdue(self._answer_within):
            end_worker(worker)
        while True:
            seat = Seat.take(self.store.root)
            if seat is None:
                return True
            with seat:
                self._settle()
                if self._table.waiting():
                    return self._start(seat)
            # whoever added meanwhile found the seat taken, by us, and relied on it
            if not self._table.waiting():
                return False

    def _start(self, seat: Seat) -> bool:
        if not seat.may_start():
            times, log = seat.futile_starts(), self.store.root / LOG
            words = f"the process that carries out launches ended {times} times before it began: see {log}"
            self._table.explain_waiting(words)
            return False
        seat.start_worker(self._idle)
        return True

    def _settle(self) -> None:
        """Says how the launches ended that a worker left behind. Only who has the seat knows that none carries them
        out.
        """
        for number, run_id, cancelled in self._table.abandoned():
            self._table.end(number, *_ending(self.store, run_id, cancelled))

    def _get(self, number: int) -> Launch:
        launch = self._table.get(number)
        if launch is None:
            raise RunNotFound(f"there is no launch {number} in {self.store.root}.")
        return launch


def _ending(store: Store, run_id: str | None, cancelled: bool) -> tuple[State, str]:
    """How a launch ended whose worker is gone: as its run says, which may have been over already."""
    folder = None if run_id is None else next((path for path in store.folders() if path.name == run_id), None)
    if folder is not None:
        info = settle(read_entry(folder).info)
        if info.status in ("finished", "failed", "stopped"):
            return info.status, info.message
    return ("stopped", UNANSWERED) if cancelled else ("failed", KILLED)


def _found_anywhere(job: Job) -> Job:
    """The job with absolute paths: who carries it out works in another folder."""
    training, hardware = job.training, job.hardware
    if training.text:
        training = replace(training, text=str(Path(training.text).absolute()))
    if hardware.cluster.endswith(".toml"):
        hardware = replace(hardware, cluster=str(Path(hardware.cluster).absolute()))
    return replace(job, training=training, hardware=hardware)
