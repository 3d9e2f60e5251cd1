"""A member as its supervisor sees it: forked, listened to, reaped and, if need be, killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.processes.channel import Channel
from engine.processes.log_pipe import Output
from engine.processes.status.board import StatusSlot
from engine.processes.worker_process import Task, become_member

_PR_SET_CHILD_SUBREAPER = 36
REAP_WAIT = 2.0  # seconds for the killed to be gone; a few ms are enough, but for one in an uninterruptible wait


@dataclass(eq=False)
class Child:
    index: int
    pid: int
    channel: Channel
    output: Output
    settled: bool = False  # it said that it is done, or what it raised: its exit is no news
    ended: bool = False
    stopped: int = 0  # by which signal

    @classmethod
    def start(
        cls, task: Task, name: str, slot: StatusSlot, lifeline: int, log: int, let_go: Callable[[], None]
    ) -> Child:
        """Fork it. `let_go` closes, in the member, everything that belongs to the supervisor."""
        parent = os.getpid()
        ours, theirs = socket.socketpair()
        output, their_output = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                os.close(output)
                let_go()
                become_member(task, slot, theirs, their_output, lifeline, parent)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(70)
        theirs.close()
        os.close(their_output)
        return cls(task.index, pid, Channel(ours), Output(output, log, name))

    def close(self) -> None:
        self.channel.close()
        self.output.close()

    def reap(self) -> int | None:
        """Its exit code (negative: the signal that killed it) if it has just ended. Also notes that it was stopped."""
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid == 0:
            return None
        if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            self.stopped = os.WSTOPSIG(status) if os.WIFSTOPPED(status) else 0
            return None
        self.ended = True
        self._kill_group()  # what it started itself
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """SIGKILL, always: a member waiting inside gloo hears nothing else."""
        os.kill(self.pid, signal.SIGKILL)
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def kill_all(children: Sequence[Child]) -> None:
    """Kill all that still run, wait until they are gone, and keep their last words."""
    living = [child for child in children if not child.ended]
    for child in living:
        child.kill()
    deadline = time.monotonic() + REAP_WAIT
    while living and time.monotonic() < deadline:
        living = [child for child in living if child.reap() is None]
        time.sleep(0.002 if living else 0)
    for child in children:
        child.output.read_all()


def adopt_orphans() -> None:
    """Whatever members leave behind becomes a child of this process, where the system can do that (Linux)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_adopted() -> None:
    """Kill what members started and moved out of their group. Call it when they are gone."""
    mine = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    deadline = time.monotonic() + REAP_WAIT
    with contextlib.suppress(OSError):  # not Linux: nobody was adopted
        while (pids := mine.read_text(encoding="ascii").split()) and time.monotonic() < deadline:
            for pid in map(int, pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.002)  # and then look again: the children of the killed are ours now
