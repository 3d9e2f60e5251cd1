"""The queue of launches: runs that a dashboard or a notebook wishes, carried out one after the other.

A launch is a run folder with status "queued". Who carries it out is a process of its own, the worker
(`lab.launcher.worker`), so a run goes on when the server that wished it ends. Nobody has to watch the worker: whoever
adds or looks makes sure that there is one if there is work, and says of the runs of a worker that died what became of
them.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.job.errors import told
from engine.job.file_name import as_text, file_of
from engine.plain_file import lines_of, open_plain
from lab.launcher.markers import Markers
from lab.launcher.worker_lock import WorkerLock, end_worker, why_none_starts
from lab.store.folder import RunInfo, Status, read_entry
from lab.store.notes import LONGEST_NAME, read_notes, write_notes
from lab.store.store import RunNotFound, Store, StoreError, settle
from lab.wording import one_line

if TYPE_CHECKING:
    from engine.job.job import Job
    from lab.running.execute import CheckedJob

__all__ = ["Launch", "LaunchQueue"]

IDLE = 120.0
"""Seconds that a worker stays when there is nothing to do, with torch loaded for the next launch."""
ANSWER_WITHIN = 5.0
"""Seconds that a worker has to end a run that is cancelled; then it is killed."""
_LOOK = 0.1  # seconds between looks while waiting

CANCELLED_EARLY = "cancelled before it began"
UNANSWERED = "stopped by the user; the process that carried it out did not answer and was ended"
STOPPED = "the process that carries it out is stopped by a signal, as SIGSTOP does: let it continue, or cancel this run"
HELD_UP = (
    "the process that carries out the runs before it is stopped by a signal, as SIGSTOP does: let it continue, or"
    " cancel the run that it is at"
)
KILLED = "the process that carried it out was killed, and the run with it"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A run as the queue sees it.

    state: the run's status; "queued" until it begins. message: why it ended as it did, or does not go on. name:
    what its wisher calls it. steps_done counts whole steps. cancelling: somebody asked to stop it while it went on.
    """

    id: str
    job: Job
    state: Status
    message: str = ""
    name: str = ""
    steps_done: int = 0
    cancelling: bool = False

    @property
    def active(self) -> bool:
        """Whether it is still to end."""
        return self.state in ("queued", "running")


class LaunchQueue:
    """The launches of a store. Several processes and threads may use it at once.

    idle: after how many seconds without work a worker that is started from here leaves. Every method raises
    `StoreError`, in one sentence, if the files in the store's root cannot be used.
    """

    def __init__(self, store: Store | None = None, idle: float = IDLE, answer_within: float = ANSWER_WITHIN) -> None:
        self.store = store or Store()
        self._markers = Markers(self.store.root)
        self._idle, self._answer_within = idle, answer_within

    def add(self, job: Job, parity: bool = True, name: str = "") -> Launch:
        """Puts `job` at the end of the queue, and sees to it that somebody carries it out. name: of its run.

        Raises `JobRefused` for a job that cannot run here; then nothing was written.
        """
        from lab.running.execute import checked

        return self.put(checked(_found_anywhere(job), parity=parity, store=self.store), name)

    def put(self, wished: CheckedJob, name: str = "") -> Launch:
        """As `add`, of a job that was checked here just before. It is once more at its turn: the machine may change."""
        run_id = self._create(_found_anywhere(wished.job), wished.parity, one_line(name)[:LONGEST_NAME])
        with suppress(StoreError):  # it is in the queue; whoever looks next tries again, and hears the trouble
            self.ensure_worker()
        return self._get(run_id)

    def active(self) -> list[Launch]:
        """What is under way or waits, in the order in which it comes."""
        self.ensure_worker()
        ids = [*self._markers.taken("busy"), *self._markers.waiting()]
        return [launch for launch in map(self._found, ids) if launch is not None and launch.active]

    def get(self, run_id: str) -> Launch:
        """Raises `RunNotFound` if there is no such run."""
        self.ensure_worker()
        return self._get(run_id)

    def has(self, run_id: str) -> bool:
        """Whether the queue carries this run out, or will."""
        self.ensure_worker()
        return run_id in (*self._markers.taken("busy"), *self._markers.waiting())

    def cancel(self, run_id: str) -> Launch:
        """Ends a launch: at once if it still waits, within about a second if it is under way; see `wait`.

        One that has ended stays as it is. Raises `RunNotFound` if there is no such run.
        """
        launch = self._get(run_id)
        if self._markers.take(run_id, "cancelled"):
            self._settle_cancelled(run_id)
        elif run_id in self._markers.taken("busy"):
            self._markers.ask_to_stop(run_id)
        elif launch.state == "queued":  # somebody has removed its marker
            self._end(run_id, "stopped", CANCELLED_EARLY)
        return self.get(run_id)

    def wait(self, run_id: str, seconds: float) -> Launch:
        """The launch when it has ended, or as it is after so many seconds."""
        deadline = time.monotonic() + seconds
        while (launch := self.get(run_id)).active and time.monotonic() < deadline:
            time.sleep(_LOOK)
        return launch

    def ensure_worker(self) -> bool:
        """Starts a worker if launches wait and there is none; whether one now carries out what there is to do.

        Cheap enough for every look at the queue. It also ends a worker that does not answer, and settles what a dead
        one left behind.
        """
        if not any((self._markers.waiting(), self._markers.taken("busy"), self._markers.taken("cancelled"))):
            return False
        for run_id in self._markers.taken("busy"):
            asked, worker = self._markers.asked_to_stop(run_id), self._markers.worker_of(run_id)
            if worker is None or asked is None:
                continue
            if asked < time.time() - self._answer_within or worker.is_stopped():
                end_worker(worker)
        self._end_stopped_between_runs()
        while True:
            lock = WorkerLock.take(self.store.root)
            if lock is None:
                return True
            with lock:
                self._settle()
                if self._markers.waiting():
                    return self._start(lock)
            # whoever added meanwhile found the lock taken, by us, and relied on it
            if not self._markers.waiting():
                return False

    def _end_stopped_between_runs(self) -> None:
        """A worker that a signal such as SIGSTOP stopped while it had no run: nothing is lost with it."""
        worker = self._markers.last_come()
        if worker is not None and not self._markers.taken("busy") and worker.is_stopped():
            end_worker(worker)

    def _start(self, lock: WorkerLock) -> bool:
        if not lock.may_start():
            return False
        lock.start_worker(self._idle)
        return True

    def _create(self, job: Job, parity: bool, name: str) -> str:
        """The folder of a run that waits, and its marker."""
        from engine.program.compile import program_of

        def fill(draft: Path, info: RunInfo) -> None:
            (draft / "live").mkdir()
            (draft / "program.txt").write_text(program_of(job).text(), encoding="utf-8")
            if name:
                write_notes(draft, name=name)

        info = self.store.create(job, (), fill, status="queued", owner=None, parity=parity)
        try:
            self._markers.put(info.id)
        except StoreError:
            shutil.rmtree(self.store.folder(info.id), ignore_errors=True)
            raise
        return info.id

    # -- what became of them -------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Says how the runs ended that a worker left behind. Only who has the lock knows that none carries them out."""
        for run_id in self._markers.taken("cancelled"):
            self._settle_cancelled(run_id)
        for run_id in self._markers.taken("busy"):
            status = settle(self._info(run_id)).status
            if status in ("queued", "running", "killed"):
                asked = self._markers.asked_to_stop(run_id) is not None
                self._end(run_id, *(("stopped", UNANSWERED) if asked else ("killed", KILLED)))
            self._markers.remove(run_id)

    def _settle_cancelled(self, run_id: str) -> None:
        self._end(run_id, "stopped", CANCELLED_EARLY)
        self._markers.remove(run_id)

    def _end(self, run_id: str, status: Status, message: str) -> None:
        info = self._info(run_id)
        if info.status not in ("corrupt", "stopped"):
            self.store.write(replace(info, status=status, message=message))

    def _info(self, run_id: str) -> RunInfo:
        return read_entry(self.store.folder(run_id)).info

    # -- looking -------------------------------------------------------------------------------------------------

    def _get(self, run_id: str) -> Launch:
        if (launch := self._found(run_id)) is None:
            raise RunNotFound(f"there is no run {told(run_id)} in {self.store.root}.")
        return launch

    def _found(self, run_id: str) -> Launch | None:
        """None where there is no such run, or it is damaged."""
        from engine.job.job import Job

        folder = self.store.folder(run_id)
        if folder not in self.store.folders():
            return None
        entry = read_entry(folder)
        info = settle(entry.info)
        if info.status == "corrupt":
            return None
        asked = self._markers.asked_to_stop(run_id) is not None
        return Launch(
            id=run_id, job=Job.from_options(**info.job), state=info.status, message=self._message(info),
            name=read_notes(folder).name, steps_done=entry.digest.get("steps", 0) or _steps_so_far(folder),
            cancelling=asked and info.status == "running",
        )  # fmt: skip

    def _message(self, info: RunInfo) -> str:
        """Why it ended as it did, why it still waits, or why it does not go on."""
        if info.status == "queued":
            held_up = any(map(self._stands_still, self._markers.taken("busy")))
            return info.message or why_none_starts(self.store.root) or (HELD_UP if held_up else "")
        return STOPPED if info.status == "running" and self._stands_still(info.id) else info.message

    def _stands_still(self, run_id: str) -> bool:
        worker = self._markers.worker_of(run_id)
        return worker is not None and worker.is_stopped()


def _steps_so_far(folder: Path) -> int:
    """Whole steps of a run that goes on: a line each."""
    try:
        with open_plain(folder / "live" / "metrics.jsonl") as file:
            return sum(line.endswith(b"\n") for line in lines_of(file))
    except (OSError, ValueError):
        return 0


def _found_anywhere(job: Job) -> Job:
    """The job with absolute paths: who carries it out works in another folder."""
    training, hardware = job.training, job.hardware
    if training.text:
        training = replace(training, text=as_text(str(file_of(training.text).absolute())))
    if hardware.cluster.endswith(".toml"):
        hardware = replace(hardware, cluster=as_text(str(file_of(hardware.cluster).absolute())))
    return replace(job, training=training, hardware=hardware)
