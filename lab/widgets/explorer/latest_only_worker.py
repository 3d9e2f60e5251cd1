"""A worker for requests of which only the newest matters: what a slider asks for while it moves."""

from __future__ import annotations

import atexit
import threading
import traceback
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")
IDLE = 5.0  # seconds without a request after which the thread ends
LAST_WAIT = 3.0  # seconds at the program's end for work under way: a thread cut off inside torch aborts the process


class Latest(Generic[T]):
    """Calls `work(request)` in a thread of its own, one at a time; a request that a newer one overtakes is dropped.

    `work` handles its own errors; what it raises all the same is printed. The thread starts with a request and ends
    when none has come for a while, so that nothing holds what is no longer used. hurry: is called at the program's
    end, so that work under way comes to its own.
    """

    def __init__(self, work: Callable[[T], None], hurry: Callable[[], None] = lambda: None) -> None:
        self._work, self.hurry = work, hurry
        self._news = threading.Condition()
        self._waiting: list[T] = []
        self._busy = False
        self._thread: threading.Thread | None = None
        _all.add(self)

    def ask(self, request: T) -> None:
        """Does not block. A request that still waits gives way to this one."""
        with self._news:
            self._waiting = [request]
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="shardlab-latest", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def settle(self, timeout: float) -> bool:
        """Waits until nothing is asked or under way, at most `timeout` seconds; whether it came to that."""
        with self._news:
            return self._news.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def _loop(self) -> None:
        while (found := self._next()) is not None:
            try:
                self._work(found[0])
            except Exception:
                traceback.print_exc()
            del found  # what was asked for may be large
            with self._news:
                self._busy = False
                self._news.notify_all()

    def _next(self) -> tuple[T] | None:
        """The newest request; None ends the thread."""
        with self._news:
            if not self._news.wait_for(lambda: self._waiting, IDLE):
                self._thread = None
                return None
            self._busy = True
            return (self._waiting.pop(),)


_all: WeakSet[Latest[Any]] = WeakSet()


@atexit.register
def _end() -> None:
    for latest in list(_all):
        latest.hurry()
    for latest in list(_all):
        latest.settle(LAST_WAIT)
