"""A queue without a worker: the test itself has its lock, so whatever is added waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.job.job import Job
from lab.launcher.markers import Markers
from lab.launcher.queue import Launch, LaunchQueue
from lab.launcher.worker_lock import WorkerLock
from lab.store.folder import Owner, RunInfo, read_entry
from lab.store.stored_run import Store

JOB = Job.from_options(dp=2, zero=1, lr=0.1, partition=(1, 3), pp=2)
GONE = Owner(pid=2**22 + 1, started=1.0, host=Owner.this_process().host)  # beyond the largest process id there is


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("SHARDLAB_RUNS", str(folder))
    return folder


@pytest.fixture
def lock(root: Path) -> Iterator[WorkerLock]:
    root.mkdir()
    with WorkerLock.take(root) or pytest.fail("somebody has the lock") as lock:
        yield lock


@pytest.fixture
def queue(root: Path, lock: WorkerLock) -> LaunchQueue:
    return LaunchQueue(Store(root))


@pytest.fixture
def markers(root: Path, queue: LaunchQueue) -> Markers:
    """As the worker sees them."""
    return Markers(root)


def take(queue: LaunchQueue, launch: Launch, worker: Owner = GONE, begin: bool = True) -> RunInfo:
    """As a worker does it."""
    markers = Markers(queue.store.root)
    assert markers.take(launch.id, "busy")
    markers.sign(launch.id, worker)
    info = read_entry(queue.store.folder(launch.id)).info
    return queue.store.begin(info) if begin else info
