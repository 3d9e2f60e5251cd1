"""Processes of long runs to kill and to stop: in this process, in another client, and in a queue's worker."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

import lab

ENDS_WITHIN = 3.0  # seconds from the strike, from the issue, on a quiet machine
PATIENCE = 120.0  # seconds for what takes as long as it takes
PLAN: dict[str, Any] = {"dp": 2, "tp": 2, "pp": 2, "zero": 3, "steps": 100_000}
COMMAND = [sys.executable, "-m", "lab.cli", "run", "--json", "--no-parity"]
COMMAND += [word for option, value in PLAN.items() for word in (f"--{option}", str(value))]


class Victim:
    """A long run in a thread, and its processes. It ends with the `with`, however that is left."""

    def __init__(self) -> None:
        self.connected, self.error = threading.Event(), None  # type: threading.Event, BaseException | None
        self.steps = 0
        self._cancel = threading.Event()
        self._strangers = set(_leaves())  # of other tests
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Victim:
        assert self.connected.wait(PATIENCE)
        self.ranks = [process for process in _leaves() if process not in self._strangers]
        self.supervisor = self.ranks[0].parent()
        self.server = self.supervisor.parent()
        assert len(self.ranks) == 8
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel.set()
        self._thread.join()

    def _run(self) -> None:
        def told(progress: Any) -> None:
            if progress.phase == "step":
                self.steps += 1
                self.connected.set()

        try:
            lab.run(**PLAN, parity=False, on_progress=told, cancel=self._cancel)
        except BaseException as error:
            self.error = error
            self.connected.set()

    def ended(self) -> bool:
        self._thread.join(in_time())
        return not self._thread.is_alive()


def _leaves() -> list[psutil.Process]:
    """The processes without children of their own."""
    return [process for process in psutil.Process().children(recursive=True) if not process.children()]


@contextmanager
def client() -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """`lab run` in a process of its own, past its first step, with all that it has started."""
    before = {run.id for run in lab.runs()}
    with subprocess.Popen(COMMAND, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: any(run.steps for run in lab.runs() if run.id not in before))
            with gone_after(process.pid) as everybody:
                yield process, everybody
        finally:
            process.kill()


@contextmanager
def gone_after(pid: int) -> Iterator[list[psutil.Process]]:
    """The process and all that it has started. None of them outlives the `with`."""
    process = psutil.Process(pid)
    everybody = [process, *process.children(recursive=True)]
    try:
        yield everybody
    finally:
        for one in everybody:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def left(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Who of them still runs when they have had their time to end."""
    deadline = time.monotonic() + in_time()
    while (alive := [one for one in processes if _runs(one)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def until(true: Callable[[], object], within: float = PATIENCE) -> None:
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def in_time() -> float:
    """`ENDS_WITHIN`, and longer where more programs want a core than there are cores."""
    return ENDS_WITHIN * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def strike(process: psutil.Process, how: int) -> float:
    """When."""
    os.kill(process.pid, how)
    return time.monotonic()
