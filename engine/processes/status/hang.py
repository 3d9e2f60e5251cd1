"""Notices a group of members that stands still.

It does when no member's progress counter moves and no member works. The members of a group wait for one another, so one
that halts soon halts them all; another group, which would go on regardless, is watched apart. A slow run is not called
hung, and neither is one that other programs starve: what its members do, or would do if they got a core, is on record
(`engine.processes.status.activity`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from engine.processes.status.activity import Activity, Thread, activity, granted, together, worked
from engine.processes.status.board import Phase, StatusBoard


class HangWatch:
    """Watches one group: call `stuck` often.

    Time in which the supervisor itself did not run (a suspended laptop) does not count.
    """

    TICK = 0.1  # seconds
    STARTING = 5  # times the patience while a member connects: a refused connection is tried again only after a while

    def __init__(self, board: StatusBoard, hang_seconds: float, spin_seconds: float) -> None:
        self._board, self._hang, self._spin = board, hang_seconds, spin_seconds
        self._last_tick = time.monotonic()
        self._progress: dict[int, int] = {}
        self._unstopped = self._last_tick  # when no member was stopped, last
        self._moved()

    def _moved(self) -> None:
        self._unmoved = 0.0  # seconds since a counter moved
        self._spun = 0.0  # the part of these seconds for which the members had the cores that they wanted
        self._looked_at, self._looked_after = 0.0, 0.0  # the last look: when, and the seconds unmoved by then
        self._last_look: Activity | None = None

    def stuck(self, pids: Mapping[int, int], *, stopped: bool) -> float | None:
        """For how long the members `pids` (index: process id) have stood still, once that is too long.

        While one is `stopped`, what the others still do is no excuse: they will have to wait for it. Since there is no
        doubt about it, half the patience will do. Members that work without progress have the longer patience, and what
        other programs take from them is added to it."""
        now = time.monotonic()
        if now - self._last_tick < self.TICK:
            return None
        elapsed, self._last_tick = min(now - self._last_tick, 2 * self.TICK), now
        self._unstopped = self._unstopped if stopped else now
        if now - self._unstopped >= self._hang / 2:
            return now - self._unstopped
        progress = {index: self._board.counter(index) for index in pids}
        if progress != self._progress:
            self._progress = progress
            self._moved()
            return None
        self._unmoved += elapsed
        if self._unmoved - self._looked_after < min(self._hang, self._spin) / 2:
            return None
        idle = self._look(pids)
        starting = any(self._board.read(index).phase is Phase.STARTING for index in pids)
        patience = self._hang * (self.STARTING if starting else 1)
        return self._unmoved if (idle and self._unmoved >= patience) or self._spun >= self._spin else None

    def _look(self, pids: Mapping[int, int]) -> bool:
        """Whether the group has not worked since the last look, half of the patience ago."""
        before, seconds, unmoved = (
            self._last_look,
            time.monotonic() - self._looked_at,
            self._unmoved - self._looked_after,
        )
        now = together(activity(pid) or self._by_heartbeat(index, pid) for index, pid in pids.items())
        self._last_look, self._looked_at, self._looked_after = now, time.monotonic(), self._unmoved
        self._spun += unmoved * (1.0 if before is None else granted(before, now, seconds))
        return before is not None and not worked(before, now, seconds)

    def _by_heartbeat(self, index: int, pid: int) -> Activity:
        """Where the system does not tell: the processor time that the member itself has noted."""
        return Activity(0, {pid: Thread(ran=self._board.read(index).cpu_seconds)})
