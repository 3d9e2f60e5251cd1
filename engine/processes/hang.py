"""Notices a run that stands still.

It does when no member's progress counter moves and no thread of any member works. A thread that works takes CPU time,
so a slow run is not called hung; or it would if it got a core, so neither is a run that other programs starve. A thread
that merely polls (gloo's event loop, a wait for a file) does little of both.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from engine.processes.status import StatusBoard

Clock = tuple[float, float]  # seconds a thread ran, and seconds it waited for a core


class HangWatch:
    """Call `stuck` often. Time in which the supervisor itself did not run (a suspended laptop) does not count."""

    TICK = 0.1  # seconds
    RAN = 0.05  # share of the time above which a thread works; pollers were seen to use up to 0.01
    WANTED = 0.8  # share of the time, running or waiting for a core, above which a thread is a starved one

    def __init__(self, board: StatusBoard, hang_seconds: float, spin_seconds: float) -> None:
        self._board, self._hang, self._spin = board, hang_seconds, spin_seconds
        self._last_tick = time.monotonic()
        self._progress: dict[int, int] = {}
        self._unmoved = 0.0  # seconds since a counter moved
        self._next_look = hang_seconds / 2
        self._looked_at = 0.0
        self._clocks: dict[int, Clock] | None = None  # at the last look

    def stuck(self, pids: Mapping[int, int], stopped: Iterable[int]) -> float | None:
        """For how long the members `pids` (index: process id) have stood still, once that is too long.

        While one is `stopped`, the others' CPU time is no excuse: they can only be polling for it."""
        now = time.monotonic()
        if now - self._last_tick < self.TICK:
            return None
        elapsed, self._last_tick = min(now - self._last_tick, 2 * self.TICK), now
        progress = {index: self._board.counter(index) for index in pids}
        if progress != self._progress:
            self._progress, self._unmoved, self._next_look, self._clocks = progress, 0.0, self._hang / 2, None
            return None
        self._unmoved += elapsed
        idle = self._unmoved >= self._next_look and self._idle(pids)
        halted = self._unmoved >= self._hang and any(stopped)
        return self._unmoved if idle or halted or self._unmoved >= self._spin else None

    def _idle(self, pids: Mapping[int, int]) -> bool:
        """Whether no thread has worked since the last look, half of `hang_seconds` ago."""
        before, seconds = self._clocks, time.monotonic() - self._looked_at
        self._clocks = {thread: clock for index, pid in pids.items() for thread, clock in self._threads(index, pid)}
        self._looked_at = time.monotonic()
        self._next_look = self._unmoved + self._hang / 2
        if before is None:
            return False
        for thread, (ran, waited) in self._clocks.items():
            ran_before, waited_before = before.get(thread, (0.0, 0.0))
            ran, waited = ran - ran_before, waited - waited_before
            if ran >= self.RAN * seconds or ran + waited >= self.WANTED * seconds:
                return False
        return not any(_waits_for_disk(pid) for pid in pids.values())

    def _threads(self, index: int, pid: int) -> Iterator[tuple[int, Clock]]:
        """The clocks of a member's threads, by id. Where the kernel does not tell, one for the whole process."""
        told = False
        with suppress(OSError):  # no such books here, or the process has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError, ValueError):  # the thread has
                    ran, waited, _ = (thread / "schedstat").read_text().split()
                    told = told or ran != "0"
                    yield int(thread.name), (int(ran) / 1e9, int(waited) / 1e9)
        if not told:
            yield pid, (self._board.read(index).cpu_seconds, 0.0)


def _waits_for_disk(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] == "D"
