"""The way from a run that goes on to the page that shows it live."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.launching import queue_actions
from dashboard.launching.queue_actions import watch_run
from engine.job.job import Job
from lab.launcher.table import LaunchTable
from lab.launcher.worker_lock import Seat
from lab.store.folder import Owner
from lab.store.store import Store


def test_a_run_is_watched_as_the_launch_it_is_of_or_else_as_itself(
    empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: list[tuple[str, Any]] = []
    monkeypatch.setattr(queue_actions, "go", lambda page, **said: visited.append((page, said)))
    info = empty.create(Job(), ())
    watch_run(info.id)
    with Seat.take(empty.root) or pytest.fail("somebody has the seat"):
        table = LaunchTable(empty.root)
        number = table.add(Job(), True, "")
        table.take(Owner.this_process())
        table.tell(number, "running", info.id, 0)
        watch_run(info.id)
    assert visited == [("live", {"live": choice}) for choice in (info.id, f"launch {number}")]
