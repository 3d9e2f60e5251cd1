"""Notices a group of members that stands still.

It does when no member's progress counter moves and no thread of any member works. The members of a group wait for one
another, so one that halts soon halts them all; another group, which would go on regardless, is watched apart. A thread
that works takes CPU time, so a slow run is not called hung; or it would if it got a core, so neither is a run that
other programs starve. A thread that merely polls (gloo's event loop, a wait for a file) does little of both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from engine.processes.status.board import Phase, StatusBoard

Clock = tuple[float, float]  # seconds a thread ran, and seconds it waited for a core


class HangWatch:
    """Watches one group: call `stuck` often.

    Time in which the supervisor itself did not run (a suspended laptop) does not count.
    """

    TICK = 0.1  # seconds
    RAN = 0.05  # share of the time above which a thread works; pollers were seen to use up to 0.01
    STARTING = 5  # times the patience while a member connects: a refused connection is tried again only after a while
    WANTED = 0.8  # share of the time, running or waiting for a core, above which a thread is a starved one

    def __init__(self, board: StatusBoard, hang_seconds: float, spin_seconds: float) -> None:
        self._board, self._hang, self._spin = board, hang_seconds, spin_seconds
        self._last_tick = time.monotonic()
        self._progress: dict[int, int] = {}
        self._unmoved = 0.0  # seconds since a counter moved
        self._unstopped = self._last_tick  # when no member was stopped, last
        self._next_look = hang_seconds / 2
        self._looked_at = 0.0
        self._clocks: dict[int, Clock] | None = None  # at the last look

    def stuck(self, pids: Mapping[int, int], *, stopped: bool) -> float | None:
        """For how long the members `pids` (index: process id) have stood still, once that is too long.

        While one is `stopped`, what the others still do is no excuse: they will have to wait for it. Since there is no
        doubt about it, half the patience will do."""
        now = time.monotonic()
        if now - self._last_tick < self.TICK:
            return None
        elapsed, self._last_tick = min(now - self._last_tick, 2 * self.TICK), now
        self._unstopped = self._unstopped if stopped else now
        if now - self._unstopped >= self._hang / 2:
            return now - self._unstopped
        progress = {index: self._board.counter(index) for index in pids}
        if progress != self._progress:
            self._progress, self._unmoved, self._next_look, self._clocks = progress, 0.0, self._hang / 2, None
            return None
        self._unmoved += elapsed
        starting = any(self._board.read(index).phase is Phase.STARTING for index in pids)
        patience = self._hang * (self.STARTING if starting else 1)
        idle = self._unmoved >= self._next_look and self._idle(pids) and self._unmoved >= patience
        return self._unmoved if idle or self._unmoved >= self._spin else None

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
