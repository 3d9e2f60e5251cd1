"""Real runs made in a thread while the kernel stays free: the newest wish wins, and any can be cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from engine.job.job import Job
from engine.processes.launch import RunCancelled
from lab.facade import Run
from lab.running.execute import execute, fitting_here
from lab.running.execution import Progress
from lab.widgets.explorer.latest_only_worker import Latest

_turn = threading.Lock()
"""Runs of explorers and questions take turns: two at once would only measure each other."""
_LOOK = 0.05  # seconds between looks at `cancel` while another run has its turn


@dataclass(frozen=True, eq=False)
class RunRequest:
    """A wish for a run of `job`, which obeys the rules: whoever wished for it has checked.

    `cancel` is there from the first moment, so that no cancelling comes too early.
    """

    job: Job
    cancel: threading.Event = field(default_factory=threading.Event)


class Background:
    """Makes runs, one at a time. `on_event` is called, in the thread of the runs, with each `Progress` and then with
    the result: the `Run`, or the exception that ended it (`RunCancelled` among them).
    """

    def __init__(self, on_event: Callable[[RunRequest, Progress | Run | Exception], None]) -> None:
        self._on_event = on_event
        self._lock = threading.Lock()
        self._newest: RunRequest | None = None
        self._latest: Latest[RunRequest] = Latest(self._execute, hurry=self.cancel)

    @property
    def wanted(self) -> Job | None:
        """The job that is run, or will be next; None when nothing is under way."""
        newest = self._newest
        return None if newest is None or newest.cancel.is_set() else newest.job

    def want(self, job: Job) -> None:
        """Runs `job` next; what is under way is cancelled, unless it is just this."""
        with self._lock:
            if self.wanted == job:
                return
            self._drop()
            self._newest = RunRequest(job)
            self._latest.ask(self._newest)

    def cancel(self) -> None:
        """Stops the newest run, if it has not ended; without waiting for its end."""
        with self._lock:
            self._drop()

    def settle(self, timeout: float) -> bool:
        """Waits until nothing is under way, at most `timeout` seconds; whether it came to that."""
        return self._latest.settle(timeout)

    def _drop(self) -> None:
        if self._newest is not None:
            self._newest.cancel.set()
            self._newest = None

    def _execute(self, request: RunRequest) -> None:
        try:
            with taking_turns(request.cancel):
                began, on_progress = time.perf_counter(), partial(self._on_event, request)
                wished = fitting_here(request.job)
                done = execute(wished, on_progress=on_progress, cancel=request.cancel, began=began)
            result: Run | Exception = Run.of(done)
        except Exception as error:  # whatever it is, the learner shall read it and the next wish shall run
            result = error
        self._on_event(request, result)  # who asks what is wanted must know the result before it is no longer wanted
        with self._lock:
            if self._newest is request:
                self._newest = None


@contextmanager
def taking_turns(cancel: threading.Event) -> Iterator[None]:
    """Raises `RunCancelled` if `cancel` is set before it is our turn."""
    while not _turn.acquire(timeout=_LOOK):
        if cancel.is_set():
            raise RunCancelled("the run was cancelled before it began")
    try:
        if cancel.is_set():
            raise RunCancelled("the run was cancelled before it began")
        yield
    finally:
        _turn.release()
