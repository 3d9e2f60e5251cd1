"""Notices a run that stands still.

It does when no member's progress counter moves and the members do no work. Work is CPU time, so a slow run is not
called hung; it is also time spent waiting for a core, so neither is a run that other programs starve.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from engine.status import StatusBoard

# Threads that wake many times a second for no work: gloo's event loop (2 to 4 ms of CPU a second each) and our own.
HEARTBEAT_THREAD = "heartbeat"
_IDLE_THREADS = frozenset({"gloo_tcp_loop", HEARTBEAT_THREAD})


class HangWatch:
    """Call `stuck` often. Time in which the supervisor itself did not run (a suspended laptop) does not count."""

    TICK = 0.1  # seconds
    IDLE_SHARE = 0.05  # of one core, used by all members together, that counts as no work

    def __init__(self, board: StatusBoard, hang_seconds: float, spin_seconds: float) -> None:
        self._board, self._spin = board, spin_seconds
        self._half = hang_seconds / 2
        self._last_tick = time.monotonic()
        self._progress: dict[int, int] = {}
        self._unmoved = 0.0  # seconds since a counter moved
        self._next_look = self._half
        self._work: float | None = None  # at the last look

    def stuck(self, pids: Mapping[int, int]) -> float | None:
        """For how long the members `pids` (index: process id) have stood still, once that is too long."""
        now = time.monotonic()
        if now - self._last_tick < self.TICK:
            return None
        elapsed, self._last_tick = min(now - self._last_tick, 2 * self.TICK), now
        progress = {index: self._board.counter(index) for index in pids}
        if progress != self._progress:
            self._progress, self._unmoved, self._next_look, self._work = progress, 0.0, self._half, None
            return None
        self._unmoved += elapsed
        idle = self._unmoved >= self._next_look and self._idle(pids)
        return self._unmoved if idle or self._unmoved >= self._spin else None

    def _idle(self, pids: Mapping[int, int]) -> bool:
        """Whether there was no work since the last look, half of `hang_seconds` ago."""
        before, self._work = self._work, sum(self._work_of(index, pid) for index, pid in pids.items())
        self._next_look = self._unmoved + self._half
        if before is None or self._work - before >= self.IDLE_SHARE * self._half:
            return False
        return not any(_waits_for_disk(pid) for pid in pids.values())

    def _work_of(self, index: int, pid: int) -> float:
        """Seconds of work a member has done or wanted to do; without Linux's books, its CPU time by its own."""
        if sys.platform == "linux" and (seconds := _thread_seconds(pid)) is not None:
            return seconds
        return self._board.read(index).cpu_seconds


def _thread_seconds(pid: int) -> float | None:
    """Time that the working threads of a process ran, or waited for a core; None where the kernel does not tell."""
    total = None
    with suppress(OSError):  # the process has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError):  # the thread has
                if (thread / "comm").read_text().strip() not in _IDLE_THREADS:
                    ran, waited, _ = (thread / "schedstat").read_text().split()
                    total = (total or 0.0) + (int(ran) + int(waited)) / 1e9
    return total


def _waits_for_disk(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "D"
