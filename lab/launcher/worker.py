"""`python -m lab.launcher.worker ROOT`: carries out the queued runs of the store in ROOT, one after the other.

It keeps the process with torch loaded warm between runs, and leaves when there has been nothing to do for a while, or
nothing is left after a cancelled run. There is one per store; another one that is started leaves at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from lab.launcher.markers import Markers
from lab.launcher.queue import IDLE as DEFAULT_IDLE
from lab.launcher.worker_lock import IDLE, WorkerLock
from lab.store.folder import Owner, RunInfo, read_entry
from lab.store.store import Store, StoreError

LOOK = 0.2  # seconds between looks at the queue


@contextmanager
def listening(run_id: str, markers: Markers) -> Iterator[threading.Event]:
    """An event that is set once somebody asks to stop the run."""
    asked, over = threading.Event(), threading.Event()

    def listen() -> None:
        while not over.wait(LOOK):
            if markers.asked_to_stop(run_id) is not None:
                asked.set()
                return

    thread = threading.Thread(target=listen, name="shardlab-stop-listener", daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join()


class Worker:
    """Has the lock, and takes runs until there is nothing to do for `idle` seconds."""

    def __init__(self, store: Store, lock: WorkerLock, idle: float) -> None:
        self._store, self._lock, self._idle = store, lock, idle
        self._markers = Markers(store.root)
        self._me = Owner.this_process()
        self._last_work: float | None = None  # None where nothing is to be kept warm for a next run

    def serve(self) -> None:
        """Raises `StoreError` if the queue cannot be used."""
        self._markers.come(self._me)
        while True:
            info = self._take()
            self._lock.came_to_work()
            if info is not None:
                stopped = self._carry_out(info)
                self._last_work = None if stopped else time.monotonic()
            elif not self._done():
                time.sleep(LOOK)
            elif not self._back():
                return

    def _take(self) -> RunInfo | None:
        """The run whose turn it is, now ours. One that cannot be read is passed over."""
        for run_id in self._markers.waiting():
            if self._markers.take(run_id, "busy"):
                self._markers.sign(run_id, self._me)
                info = read_entry(self._store.folder(run_id)).info
                if info.status == "queued":
                    return info
                _log(f"run {run_id} is passed over: {info.message or info.status}")
                self._markers.remove(run_id)
        return None

    def _done(self) -> bool:
        """After a cancelled run nobody shall find processes; after any other the next may come soon."""
        return self._last_work is None or time.monotonic() - self._last_work > self._idle or not self._lock.is_there()

    def _back(self) -> bool:
        """Gives the lock up, and takes it again if somebody has added a run, relying on it, in this very moment."""
        self._lock.leave()
        if not self._markers.waiting() or (lock := WorkerLock.take(self._store.root)) is None:
            return False
        self._lock = lock
        return True

    def _carry_out(self, info: RunInfo) -> bool:
        """Whether the run was stopped by the user."""
        _log(f"run {info.id} begins")
        try:
            message = self._run(info)
        finally:
            self._markers.remove(info.id)
        status = read_entry(self._store.folder(info.id)).info.status
        _log(f"run {info.id} {status}{': ' if message else ''}{message}")
        return status == "stopped"

    def _run(self, info: RunInfo) -> str:
        """Carries the run out; what went wrong. How it ended stands in its folder."""
        from engine.job.job import Job
        from engine.processes.launch import RunCancelled
        from lab.running.execute import run_job

        try:
            job = Job.from_options(**info.job)
            with listening(info.id, self._markers) as asked:
                run_job(job, parity=info.parity, cancel=asked, store=self._store, queued=info)
        except RunCancelled:
            return ""
        except Exception as error:  # whatever it is, who wished it shall read it and the next run shall begin
            message = str(error) or type(error).__name__
            self._never_began(info, message)
            return message
        return ""

    def _never_began(self, info: RunInfo, message: str) -> None:
        """Says in its folder why a run failed that did not come so far as to say it itself."""
        if read_entry(self._store.folder(info.id)).info.status == "queued":
            with suppress(StoreError):
                self._store.write(replace(info, status="failed", message=message))


def _log(words: str) -> None:
    with suppress(OSError):  # a full disk is told elsewhere
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}", file=sys.stderr, flush=True)


def _take_lock(root: Path) -> WorkerLock | None:
    """Somebody who only looks has it for a moment; a worker keeps it."""
    for _ in range(5):
        if (lock := WorkerLock.take(root)) is not None:
            return lock
        time.sleep(LOOK)
    return None


def main() -> int:
    """What `python -m lab.launcher.worker` does; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.launcher.worker", description=__doc__)
    parser.add_argument("root", metavar="ROOT", type=Path, help="the folder of the store")
    parser.add_argument("--lock", type=int, metavar="FD", help="the locked file, from whoever starts a worker")
    args = parser.parse_args()
    root = args.root.absolute()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the system ends: the run is stopped, not killed
    sys.argv = ["python", "-m", "lab.launcher.worker", str(root)]  # what a report says its run was started by
    try:
        lock = WorkerLock.passed_on(root, args.lock) if args.lock is not None else _take_lock(root)
        if lock is None:
            return 0
        from engine.execution.session import PRELOAD
        from engine.processes.launch import warm

        warm(PRELOAD)  # torch loads in a process of its own while this one looks for work
        Worker(Store(root), lock, float(os.environ.get(IDLE, DEFAULT_IDLE))).serve()
    except StoreError as error:
        _log(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
