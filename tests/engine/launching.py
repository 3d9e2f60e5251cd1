"""Launches of fake ranks for tests, with somebody to strike in the middle.

The contract gives 3 s from a fault to the exception. `LIMIT` doubles it: the tests run on shared, noisy machines, and a
loop that were really broken would take the 60 s of the gloo timeout. Nothing in these tests asserts another time.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.execution.session import PRELOAD
from engine.processes.launch import Failure, Member, RunFailed, launch

HERE = Path(__file__).resolve().parent
LIMIT = 3.0 * 2
Events = list[tuple[str, dict[str, Any]]]


def members(count: int, function: str, **payload: Any) -> list[Member]:
    return [Member(f"rank {i} (data {i})", f"fake_ranks:{function}", payload) for i in range(count)]


def run(
    tmp_path: Path, who: list[Member], act: Callable[[Events], None] = lambda events: None, **options: Any
) -> Events:
    """Launch, and call `act` after each event."""
    events: Events = []

    def on_event(name: str, event: dict[str, Any]) -> None:
        events.append((name, event))
        act(events)

    launch(who, log_path=tmp_path / "log.txt", run_json=None, on_event=on_event, preload=PRELOAD, **options)
    return events


class Sabotage:
    """Strikes once all members of a run have said that they are up, and remembers when and who they were."""

    def __init__(self, size: int, strike: Callable[[list[int], int], None] = lambda pids, supervisor: None):
        self._size, self._strike = size, strike
        self.pids: list[int] = []
        self.supervisor = 0
        self.at = 0.0

    def __call__(self, events: Events) -> None:
        self.pids.append(events[-1][1]["pid"])
        self.supervisor = events[-1][1].get("supervisor", self.supervisor)
        if len(self.pids) == self._size:
            self.at = time.monotonic()
            self._strike(self.pids, self.supervisor)

    def check(self) -> None:
        """Call when the run has ended: in time, and with nobody left."""
        assert time.monotonic() - self.at < LIMIT
        assert len(self.pids) >= self._size
        assert not left([*self.pids, self.supervisor])


def left(pids: list[int], patience: float = 1.0) -> list[int]:
    """Who of them still runs. Without a parent that reaps it, a dead process may stay as a zombie."""
    deadline = time.monotonic() + patience
    while (alive := [pid for pid in pids if pid and _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill(index: int, number: int = signal.SIGKILL) -> Callable[[list[int], int], None]:
    return lambda pids, supervisor: os.kill(pids[index], number)


def failure_of(tmp_path: Path, sabotage: Sabotage, who: list[Member], **options: Any) -> Failure:
    with pytest.raises(RunFailed) as caught:
        run(tmp_path, who, sabotage, **options)
    sabotage.check()
    assert str(caught.value) == str(caught.value.failure)
    return caught.value.failure
