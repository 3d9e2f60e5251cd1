"""Whether a process that the client depends on has been stopped by a signal, and so does not answer."""

from __future__ import annotations

import time

LOOK = 0.25  # seconds between looks
PATIENCE = 1.0  # seconds; whoever stopped it may have meant to let it go on at once


def is_stopped(pid: int) -> bool:
    """By SIGSTOP or its like; one that a debugger holds is not."""
    import psutil  # some 15 ms, so not before it is needed

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    except psutil.Error:
        return False


class StopWatch:
    """Watches whichever process is depended on now: call `too_long` often."""

    def __init__(self) -> None:
        self._next_look = time.monotonic() + LOOK
        self._since: dict[int, float] = {}  # when it was first seen stopped

    def too_long(self, pid: int) -> float | None:
        """For how many seconds `pid` has been stopped, once that is too long."""
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + LOOK
        self._since = {pid: self._since.get(pid, now)} if is_stopped(pid) else {}
        seconds = now - self._since.get(pid, now)
        return seconds if seconds >= PATIENCE else None
