"""The way from a run to the page that shows it live."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psutil
import pytest

from dashboard.launching import queue_actions
from dashboard.launching.queue_actions import start, watch
from engine.job.job import Job
from lab.launcher.markers import Markers
from lab.launcher.worker_lock import WorkerLock
from lab.running.execute import checked
from lab.store.folder import Owner
from lab.store.store import Store
from tests.dashboard.conftest import Visit


def test_a_run_is_watched_by_its_id_before_it_begins(empty: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[tuple[str, Any]] = []
    monkeypatch.setattr(queue_actions, "go", lambda page, **said: visited.append((page, said)))
    empty.root.mkdir()
    with WorkerLock.take(empty.root) or pytest.fail("somebody has the lock"):
        (launch,) = start([checked(Job())], ["mine"])
        watch(launch.id)
    assert visited == [("live", {"live": launch.id})] and empty.find("latest").info.status == "queued"


@pytest.fixture
def stopped() -> Iterator[Owner]:
    """A process that SIGSTOP has stopped, in the place of the one that carries out launches."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    known = psutil.Process(process.pid)
    known.suspend()
    deadline = time.monotonic() + 10
    while known.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield Owner(process.pid, known.create_time(), socket.gethostname())
    process.kill()
    process.wait()


def test_why_a_run_and_those_after_it_stand_still_is_said_where_they_are_watched(
    empty: Store, visit: Visit, stopped: Owner
) -> None:
    empty.root.mkdir()
    with WorkerLock.take(empty.root) or pytest.fail("somebody has the lock"):
        first, second = start([checked(Job()), checked(Job(), parity=False)], ["first", "second"])
        markers = Markers(empty.root)
        markers.take(first.id, "busy")
        markers.sign(first.id, stopped)
        with empty.executing(first.id):
            empty.write(replace(empty.find(first.id).info, status="running"))
            (told,) = visit("live", live=first.id).warning
            assert "stopped by a signal" in told.value and "let it continue, or cancel this run" in told.value
            (waits,) = visit("live", live=second.id).info
            assert "stopped by a signal" in waits.value and "cancel the run that it is at" in waits.value
