"""`python -m lab.launcher.worker ROOT`: carries out the launches of the store in ROOT, one after the other.

It keeps the process with torch loaded warm between launches, and leaves when there has been nothing to do for a while,
or nothing is left after a cancelled launch. There is one per store; another one that is started leaves at once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lab.launcher.queue import IDLE as DEFAULT_IDLE
from lab.launcher.queue import STOPPED
from lab.launcher.table import Launch, LaunchTable, State
from lab.launcher.worker_lock import IDLE, Seat
from lab.store.folder import Owner, read_entry
from lab.store.notes import LONGEST_NAME, write_notes
from lab.store.store import Store, StoreError

if TYPE_CHECKING:
    from lab.running.execution import Progress

LOOK = 0.2  # seconds between looks at the table
DIFFERS = "its numbers differ from those of one process"


class Watched:
    """A launch under way: tells the table how far it is, and hears from it when to stop, in a thread of its own.

    A table that cannot be used for the moment does not end the run. A run that was stopped counts as ended from then
    on, though the tables of what it did are still to be made. The run is called what the launch is.
    """

    def __init__(self, launch: Launch, table: LaunchTable, store: Store) -> None:
        self.cancel = threading.Event()
        self._number, self._name, self._table, self._store = launch.id, launch.name, table, store
        self._state: State = "starting"
        self._run_id = ""
        self._steps_done = self._told = 0
        self._over, self._telling = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="shardlab-watched", daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def __call__(self, progress: Progress) -> None:
        """Steps may be done many times in each look, so the thread tells of them."""
        if self._name and not self._run_id:
            self._pass_the_name_on(progress.run_id)
        self._run_id = progress.run_id
        if progress.step is not None:
            self._steps_done = progress.step + 1
        if progress.phase in ("starting", "ready"):
            self._state = "starting" if progress.phase == "starting" else "running"
            self._tell()

    def _loop(self) -> None:
        while not self._over.wait(LOOK):
            with suppress(StoreError):
                self._look()

    def _look(self) -> None:
        if self._table.cancel_asked(self._number):
            self.cancel.set()
        if self._steps_done != self._told:
            self._told = self._steps_done
            self._tell()
        if self.cancel.is_set() and self._run_id and self._is_stopped():
            self._table.end(self._number, "stopped", STOPPED)

    def _is_stopped(self) -> bool:
        return read_entry(self._store.folder(self._run_id)).info.status == "stopped"

    def _pass_the_name_on(self, run_id: str) -> None:
        with suppress(ValueError, StoreError):  # a name is no reason to end a run
            write_notes(self._store.folder(run_id), name=self._name[:LONGEST_NAME])

    def _tell(self) -> None:
        with suppress(StoreError), self._telling:  # in turn, lest old news follow the new
            self._table.tell(self._number, self._state, self._run_id, self._steps_done)


class Worker:
    """Has the seat, and takes launches until there is nothing to do for `idle` seconds."""

    def __init__(self, store: Store, seat: Seat, idle: float) -> None:
        self._store, self._seat, self._idle = store, seat, idle
        self._table = LaunchTable(store.root)
        self._me = Owner.this_process()
        self._last_work = time.monotonic()

    def serve(self) -> None:
        """Raises `StoreError` if the table cannot be used."""
        while True:
            launch = self._table.take(self._me)
            self._seat.came_to_work()
            if launch is not None:
                self._carry_out(launch)
                self._last_work = time.monotonic()
            elif not self._done():
                time.sleep(LOOK)
            elif not self._back():
                return

    def _done(self) -> bool:
        """After a cancelled launch nobody shall find processes; after any other the next may come soon."""
        idle = time.monotonic() - self._last_work > self._idle
        return idle or self._table.last_was_stopped() or not self._seat.is_there()

    def _back(self) -> bool:
        """Gives the seat up, and takes it again if somebody has added a launch, relying on it, in this very moment."""
        self._seat.leave()
        if not self._table.waiting() or (seat := Seat.take(self._store.root)) is None:
            return False
        self._seat = seat
        return True

    def _carry_out(self, launch: Launch) -> None:
        _log(f"launch {launch.id} begins")
        try:
            state, message = self._run(launch)
        except KeyboardInterrupt:
            self._table.end(launch.id, "stopped", "the process that carried it out was asked to end")
            raise
        self._table.end(launch.id, state, message)
        _log(f"launch {launch.id} {state}{': ' if message else ''}{message}")

    def _run(self, launch: Launch) -> tuple[State, str]:
        """Carries the launch out; how it ended."""
        from engine.job.errors import JobRefused
        from engine.processes.launch import RunCancelled
        from lab.running.execute import run_job

        try:
            with Watched(launch, self._table, self._store) as watched:
                run = run_job(
                    launch.job, parity=launch.parity, on_progress=watched, cancel=watched.cancel, store=self._store
                )
        except RunCancelled:
            return "stopped", STOPPED
        except JobRefused as error:
            return "refused", str(error)
        except Exception as error:  # whatever it is, who wished it shall read it and the next launch shall run
            return "failed", str(error) or type(error).__name__
        return "finished", DIFFERS if run.summary["parity"]["passed"] is False else ""


def _log(words: str) -> None:
    with suppress(OSError):  # a full disk is told elsewhere
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {words}", file=sys.stderr, flush=True)


def _take_seat(root: Path) -> Seat | None:
    """Somebody who only looks has it for a moment; a worker keeps it."""
    for _ in range(5):
        if (seat := Seat.take(root)) is not None:
            return seat
        time.sleep(LOOK)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.launcher.worker", description=__doc__)
    parser.add_argument("root", metavar="ROOT", type=Path, help="the folder of the store")
    parser.add_argument("--seat", type=int, metavar="FD", help="the locked file, from whoever starts a worker")
    args = parser.parse_args()
    root = args.root.absolute()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the system ends: the run is stopped, not killed
    sys.argv = ["python", "-m", "lab.launcher.worker", str(root)]  # what a report says its run was started by
    try:
        seat = Seat.passed_on(root, args.seat) if args.seat is not None else _take_seat(root)
        if seat is None:
            return 0
        from engine.processes.launch import warm

        warm()  # torch loads in a process of its own while this one looks for work
        Worker(Store(root), seat, float(os.environ.get(IDLE, DEFAULT_IDLE))).serve()
    except StoreError as error:
        _log(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
