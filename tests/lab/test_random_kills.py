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
from engine.launch import RunFailed
from lab.runs import Run

ENDS_WITHIN = 3.0  # seconds from the kill, from the issue


class Victim:
    """A long run in a thread, and its rank processes."""

    def __init__(self) -> None:
        self.connected, self.error = threading.Event(), None  # type: threading.Event, BaseException | None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self.connected.wait(60)

    def _run(self) -> None:
        def told(progress: Any) -> None:
            if progress.phase == "step":
                self.connected.set()

        try:
            lab.run(dp=2, tp=2, pp=2, zero=3, steps=100_000, parity=False, on_progress=told)
        except BaseException as error:
            self.error = error

    def ranks(self) -> list[psutil.Process]:
        """The processes without children of their own."""
        return [p for p in psutil.Process().children(recursive=True) if not p.children()]

    def ended(self) -> bool:
        self._thread.join(ENDS_WITHIN)
        return not self._thread.is_alive()


def test_twenty_random_kills_are_each_named_within_seconds_and_leave_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path))
    chance = random.Random(20)
    kept = lab.run(steps=1)
    slowest = 0.0
    for _ in range(20):
        victim = Victim()
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
