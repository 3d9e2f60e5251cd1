"""The way from a run to the page that shows it live."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.launching import queue_actions
from dashboard.launching.queue_actions import start, watch
from engine.job.job import Job
from lab.launcher.worker_lock import WorkerLock
from lab.running.execute import checked
from lab.store.store import Store


def test_a_run_is_watched_by_its_id_before_it_begins(empty: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[tuple[str, Any]] = []
    monkeypatch.setattr(queue_actions, "go", lambda page, **said: visited.append((page, said)))
    empty.root.mkdir()
    with WorkerLock.take(empty.root) or pytest.fail("somebody has the lock"):
        (launch,) = start([checked(Job())], ["mine"])
        watch(launch.id)
    assert visited == [("live", {"live": launch.id})] and empty.find("latest").info.status == "queued"
