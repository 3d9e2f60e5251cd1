"""A queue without a worker: the test itself has its seat, so whatever is added waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.job.job import Job
from lab.launcher.queue import LaunchQueue
from lab.launcher.table import LaunchTable
from lab.launcher.worker_lock import Seat
from lab.store.folder import Owner
from lab.store.stored_run import Store

JOB = Job.from_options(dp=2, zero=1, lr=0.1, partition=(1, 3), pp=2)
GONE = Owner(pid=2**22 + 1, started=1.0, host=Owner.this_process().host)  # beyond the largest process id there is


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runs"
    monkeypatch.setenv("SHARDLAB_RUNS", str(folder))
    return folder


@pytest.fixture
def seat(root: Path) -> Iterator[Seat]:
    root.mkdir()
    with Seat.take(root) or pytest.fail("somebody has the seat") as seat:
        yield seat


@pytest.fixture
def queue(root: Path, seat: Seat) -> LaunchQueue:
    return LaunchQueue(Store(root))


@pytest.fixture
def table(root: Path, queue: LaunchQueue) -> LaunchTable:
    """As the worker sees it."""
    return LaunchTable(root)


def sql(root: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(root / "launches.sqlite")) as base, base:
        base.execute(statement, values)
