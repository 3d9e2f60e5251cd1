"""Twenty runs, each with a random process killed at a random time: told, ended, nobody left, nothing lost."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import lab
from engine.processes.launch import RunFailed
from lab.facade import Run

pytestmark = pytest.mark.timed
ENDS_WITHIN = 3.0  # seconds from the kill, from the issue


class Victim:
    """A long run in a thread, and its rank processes. It ends with the `with`, however that is left."""

    def __init__(self) -> None:
        self.connected, self.error = threading.Event(), None  # type: threading.Event, BaseException | None
        self._cancel = threading.Event()
        self._strangers = set(_leaves())  # of other tests
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> Victim:
        assert self.connected.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel.set()
        self._thread.join()

    def _run(self) -> None:
        def told(progress: Any) -> None:
            if progress.phase == "step":
                self.connected.set()

        try:
            lab.run(dp=2, tp=2, pp=2, zero=3, steps=100_000, parity=False, on_progress=told, cancel=self._cancel)
        except BaseException as error:
            self.error = error

    def ranks(self) -> list[psutil.Process]:
        return [process for process in _leaves() if process not in self._strangers]

    def ended(self) -> bool:
        self._thread.join(ENDS_WITHIN)
        return not self._thread.is_alive()


def _leaves() -> list[psutil.Process]:
    """The processes without children of their own."""
    return [process for process in psutil.Process().children(recursive=True) if not process.children()]


def test_twenty_random_kills_are_each_named_within_seconds_and_leave_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path))
    chance = random.Random(20)
    kept = lab.run(steps=1)
    slowest = 0.0
    for _ in range(20):
        with Victim() as victim:
            time.sleep(chance.uniform(0.0, 0.7))
            ranks = victim.ranks()
            assert len(ranks) == 8
            chance.choice(ranks).kill()
            killed_at = time.perf_counter()
            assert victim.ended()
        slowest = max(slowest, time.perf_counter() - killed_at)
        assert isinstance(victim.error, RunFailed)
        assert victim.error.failure.member.startswith("rank ") and "SIGKILL" in str(victim.error)
        assert victim.error.failure.action, "the action it was in"
        assert not [p for p in ranks if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    print(f"slowest of 20: {slowest:.2f} s")
    runs: list[Run] = lab.runs()
    assert [run.status for run in runs].count("failed") == 20
    assert lab.load(kept.id).summary == kept.summary and lab.load(kept.id).status == "finished"
    assert all(run.recording.ops.num_rows > 0 for run in runs), "what was done before the kill stays readable"
