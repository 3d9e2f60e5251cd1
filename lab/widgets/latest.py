"""A worker for requests of which only the newest matters: what a slider asks for while it moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """Calls `work(request)` in a thread of its own, one at a time; a request that a newer one overtakes is dropped.

    `work` handles its own errors: what it raises ends the thread, loudly. The thread starts with the first request.
    """

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work = work
        self._news = threading.Condition()
        self._waiting: list[T] = []
        self._busy = False
        self._thread: threading.Thread | None = None

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
