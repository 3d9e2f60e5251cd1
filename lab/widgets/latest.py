"""A worker for requests of which only the newest matters: what a slider asks for while it moves."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")
LAST_WAIT = 3.0  # seconds at the program's end for work under way: a thread cut off inside torch aborts the process


class Latest(Generic[T]):
    """Calls `work(request)` in a thread of its own, one at a time; a request that a newer one overtakes is dropped.

    `work` handles its own errors: what it raises ends the thread, loudly. The thread starts with the first request.
    hurry: is called at the program's end, so that work under way comes to its own.
    """

    def __init__(self, work: Callable[[T], None], hurry: Callable[[], None] = lambda: None) -> None:
        self._work, self.hurry = work, hurry
        self._news = threading.Condition()
        self._waiting: list[T] = []
        self._busy = False
        self._thread: threading.Thread | None = None
        _all.add(self)

    def ask(self, request: T) -> None:
        with self._news:
            self._waiting = [request]
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._loop, name="shardlab-latest", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def settle(self, timeout: float) -> bool:
        """Waits until nothing is asked or under way, at most `timeout` seconds; whether it came to that."""
        with self._news:
            return self._news.wait_for(lambda: not self._waiting and not self._busy, timeout)

    def _loop(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting)
                request = self._waiting.pop()
                self._busy = True
            try:
                self._work(request)
            finally:
                with self._news:
                    self._busy = False
                    self._news.notify_all()


_all: WeakSet[Latest[Any]] = WeakSet()


@atexit.register
def _end() -> None:
    for latest in list(_all):
        latest.hurry()
    for latest in list(_all):
        latest.settle(LAST_WAIT)
