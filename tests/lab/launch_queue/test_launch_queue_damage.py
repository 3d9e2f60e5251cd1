"""What becomes of the queue when its markers or folders are damaged, or the disk is full or not to be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from lab.launcher.markers import Markers
from lab.launcher.queue import LaunchQueue
from lab.launcher.worker import Worker
from lab.launcher.worker_lock import WorkerLock
from lab.store.stored_run import RunNotFound, Store, StoreError
from tests.lab.launch_queue.conftest import JOB, take


@pytest.mark.parametrize("how", ["gone", "without run.json", "no JSON", "another job"])
def test_a_damaged_run_is_passed_over_and_disturbs_no_other(
    queue: LaunchQueue, markers: Markers, root: Path, lock: WorkerLock, how: str
) -> None:
    damaged, whole = queue.add(JOB), queue.add(JOB)
    path = root / damaged.id / "run.json"
    if how == "gone":
        shutil.rmtree(path.parent)
    elif how == "without run.json":
        path.unlink()
    else:
        path.write_text("{" if how == "no JSON" else path.read_text().replace('"dp": 2', '"dp": "rm -rf /"'))
    with pytest.raises(RunNotFound, match=damaged.id):
        queue.get(damaged.id)
    assert [launch.id for launch in queue.active()] == [whole.id]
    taken = Worker(Store(root), lock, idle=0.0)._take()
    assert taken is not None and taken.id == whole.id and markers.waiting() == []


@pytest.mark.parametrize("words", ["", "{", "[]", '{"pid": "x"}'])
def test_a_worker_that_never_was_is_not_looked_for(queue: LaunchQueue, root: Path, words: str) -> None:
    launch = queue.add(JOB)
    with queue.store.executing(launch.id):
        take(queue, launch)
        (root / ".queue" / f"{launch.id}.busy").write_text(words)
        queue.cancel(launch.id)
        os.utime(root / ".queue" / f"{launch.id}.stop", (time.time() - 60,) * 2)
        assert Markers(root).worker_of(launch.id) is None and queue.ensure_worker()


def test_what_else_lies_among_the_markers_is_left_alone(queue: LaunchQueue, root: Path) -> None:
    launch = queue.add(JOB)
    (root / ".queue" / "notes of mine").write_text("hands off")
    (root / ".queue" / "a folder").mkdir()
    assert [one.id for one in queue.active()] == [launch.id]
    assert (root / ".queue" / "notes of mine").read_text() == "hands off"


def test_without_its_folder_the_queue_starts_anew_and_all_runs_are_kept(queue: LaunchQueue, root: Path) -> None:
    launch = queue.add(JOB)
    shutil.rmtree(root / ".queue")
    assert queue.active() == [] and queue.get(launch.id).state == "queued"
    assert queue.cancel(launch.id).state == "stopped"
    assert queue.add(JOB).state == "queued"


def test_a_full_disk_is_told_in_words_and_loses_nothing(small_disk: Path) -> None:
    root = small_disk / "runs"
    root.mkdir()
    queue = LaunchQueue(Store(root))
    with WorkerLock.take(root) or pytest.fail("somebody has the lock"):
        queue.add(JOB)
        ballast = small_disk / "ballast"
        with pytest.raises(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        made = 1
        with pytest.raises(StoreError, match="free some space or set SHARDLAB_RUNS to another folder"):
            for _ in range(1000):
                queue.add(JOB)
                made += 1
        ballast.unlink()
        assert len(queue.active()) == made == len(queue.store.folders()), "no half of a run is left"
        assert queue.add(JOB).state == "queued"


def test_a_folder_that_cannot_be_written_is_told_in_words(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="set SHARDLAB_RUNS to another folder"):
        LaunchQueue(Store(tmp_path / "file" / "runs")).add(JOB)
    queue = LaunchQueue(Store(small_disk))
    with WorkerLock.take(small_disk) or pytest.fail("somebody has the lock"):
        launch = queue.add(JOB)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for act in (queue.active, queue.ensure_worker, lambda: queue.add(JOB), lambda: queue.cancel(launch.id)):
        with pytest.raises(StoreError, match="set SHARDLAB_RUNS to another folder"):
            act()
