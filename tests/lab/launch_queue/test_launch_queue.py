"""The queue of launches without a worker: the test itself has its lock, so whatever is added waits."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import lab
from engine.job.errors import JobRefused
from engine.job.job import Job
from lab.cli.parser import main
from lab.launcher.markers import Markers, Taken
from lab.launcher.queue import Launch, LaunchQueue
from lab.launcher.worker import listening
from lab.launcher.worker_lock import FUTILE_STARTS, WorkerLock
from lab.store.folder import Owner, read_entry
from lab.store.notes import LONGEST_NAME, read_notes
from lab.store.stored_run import RunNotFound, Store
from lab.store.trash import delete
from tests.lab.launch_queue.conftest import GONE, JOB, take

# -- order ---------------------------------------------------------------------------------------------------


def test_a_launch_is_a_run_folder_that_says_queued(queue: LaunchQueue) -> None:
    added = queue.add(JOB, parity=False, name="  ZeRO\n  \x1b\u202e\ud800on two ")
    assert (added.job, added.state, added.name, added.steps_done) == (JOB, "queued", "ZeRO on two", 0)
    assert queue.get(added.id) == added == queue.active()[0]
    run = lab.load("latest")
    assert (run.id, run.status, run.job, run.info.parity) == (added.id, "queued", JOB, False)
    assert run.info.owner is None and run.steps == [] and run.program.lanes


def test_what_is_to_come_is_in_its_order(queue: LaunchQueue) -> None:
    made = [queue.add(JOB, name=name).id for name in "abc"]
    assert [launch.id for launch in queue.active()] == made
    assert [launch.name for launch in queue.active()] == ["a", "b", "c"]


def test_many_takers_get_every_run_once_and_the_oldest_first(queue: LaunchQueue, markers: Markers) -> None:
    made = [queue.add(JOB).id for _ in range(20)]
    taken: list[list[str]] = [[] for _ in range(4)]

    def work(mine: list[str]) -> None:
        while waiting := markers.waiting():
            if markers.take(waiting[0], "busy"):
                mine.append(waiting[0])

    threads = [threading.Thread(target=work, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run_id for mine in taken for run_id in mine) == sorted(made)
    assert all([made.index(run_id) for run_id in mine] == sorted(map(made.index, mine)) for mine in taken)


def test_a_job_that_cannot_run_is_refused_before_anything_is_written(root: Path) -> None:
    with pytest.raises(JobRefused, match="tp=3 does not divide heads=4"):
        LaunchQueue(Store(root)).add(Job.from_options(tp=3))
    assert not root.exists()


def test_paths_in_a_job_are_found_from_any_folder(
    queue: LaunchQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text("to be or not to be " * 500)
    shutil.copy(Path(__file__).parents[3] / "engine" / "cluster" / "presets" / "toy-2x4.toml", "mine.toml")
    job = queue.add(Job.from_options(text="mine.txt", cluster="mine.toml")).job
    assert (job.training.text, job.hardware.cluster) == (str(tmp_path / "mine.txt"), str(tmp_path / "mine.toml"))
    assert queue.add(Job.from_options(cluster="toy-2x4")).job.hardware.cluster == "toy-2x4"


def test_a_long_name_is_cut(queue: LaunchQueue) -> None:
    launch = queue.add(JOB, name="ZeRO\n on \ud800two " + 99 * "x")
    assert launch.name == read_notes(queue.store.folder(launch.id)).name == ("ZeRO on two " + 99 * "x")[:LONGEST_NAME]


# -- cancelling ----------------------------------------------------------------------------------------------


def test_a_cancelled_run_is_never_taken_and_stays_in_the_store(queue: LaunchQueue, markers: Markers) -> None:
    first, second = queue.add(JOB), queue.add(JOB)
    cancelled = queue.cancel(first.id)
    assert (cancelled.state, cancelled.message) == ("stopped", "cancelled before it began")
    assert markers.waiting() == [second.id] and not markers.take(first.id, "busy")
    assert lab.load(first.id).status == "stopped"


def test_of_who_takes_and_who_cancels_at_once_one_wins(queue: LaunchQueue, markers: Markers) -> None:
    won: list[bool] = []

    def try_to(run_id: str, how: Taken) -> None:
        won.append(markers.take(run_id, how))

    for _ in range(20):
        launch = queue.add(JOB)
        threads = [threading.Thread(target=try_to, args=(launch.id, how)) for how in ("busy", "cancelled")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == [False, True]
        won.clear()
        markers.remove(launch.id)


def test_cancelling_what_is_under_way_only_asks(queue: LaunchQueue, markers: Markers) -> None:
    launch = queue.add(JOB)
    with queue.store.executing(launch.id):
        take(queue, launch, Owner.this_process())
        assert markers.asked_to_stop(launch.id) is None
        asked = queue.cancel(launch.id)
        assert asked.state == "running" and asked.cancelling and asked.active
        assert markers.asked_to_stop(launch.id) is not None


def test_cancelling_what_has_ended_changes_nothing(queue: LaunchQueue, markers: Markers) -> None:
    launch = queue.add(JOB)
    queue.store.write(replace(take(queue, launch), status="failed", message="rank 1 died"))
    markers.remove(launch.id)
    ended = queue.get(launch.id)
    assert queue.cancel(launch.id) == ended and ended.state == "failed" and not ended.cancelling


def test_a_run_that_lost_its_place_in_the_queue_can_be_cancelled(queue: LaunchQueue, markers: Markers) -> None:
    launch = queue.add(JOB)
    markers.remove(launch.id)
    assert queue.cancel(launch.id).state == "stopped"


@pytest.mark.parametrize("do", [LaunchQueue.get, LaunchQueue.cancel])
@pytest.mark.parametrize("name", ["nobody", "../runs", "20260101-000000-dp1tp1pp1-zero0-abcd"])
def test_a_run_that_does_not_exist_is_told_in_words(queue: LaunchQueue, do: Any, name: str) -> None:
    with pytest.raises(RunNotFound, match="there is no run"):
        do(queue, name)


def test_a_run_hears_that_it_is_to_stop(queue: LaunchQueue, markers: Markers) -> None:
    launch = queue.add(JOB)
    with queue.store.executing(launch.id), listening(launch.id, markers) as asked:
        take(queue, launch, Owner.this_process())
        assert not asked.is_set()
        queue.cancel(launch.id)
        assert asked.wait(10)


def test_a_run_that_waits_is_not_deleted(queue: LaunchQueue) -> None:
    launch = queue.add(JOB)
    with pytest.raises(ValueError, match="waits for its turn: cancel it before you delete it"):
        delete(queue.store, launch.id)
    queue.cancel(launch.id)
    delete(queue.store, launch.id)
    assert queue.active() == []


# -- whoever looks -------------------------------------------------------------------------------------------


def test_who_only_looks_starts_nobody_and_writes_nothing(root: Path) -> None:
    before = psutil.Process().children()
    queue = LaunchQueue(Store(root))
    assert queue.active() == [] and queue.ensure_worker() is False
    assert not root.exists() and psutil.Process().children() == before


def under_way(root: Path, begin: bool) -> tuple[LaunchQueue, Launch]:
    """A run that a worker has taken, who is gone, and the lock is free."""
    root.mkdir(exist_ok=True)
    queue = LaunchQueue(Store(root))
    with WorkerLock.take(root) or pytest.fail("somebody has the lock"):
        launch = queue.add(JOB)
        take(queue, launch, GONE, begin)
    return queue, launch


@pytest.mark.parametrize("begun", [False, True])
def test_what_a_dead_worker_left_is_settled_by_whoever_looks_next(root: Path, begun: bool) -> None:
    queue, launch = under_way(root, begun)
    found = queue.get(launch.id)
    assert (found.state, found.message) == ("killed", "the process that carried it out was killed, and the run with it")
    assert queue.get(launch.id) == found and queue.active() == [] and not queue.has(launch.id)


@pytest.mark.parametrize(("status", "message"), [("failed", "rank 1 died"), ("stopped", "by the user")])
def test_a_run_that_was_over_before_its_worker_died_is_as_it_ended(root: Path, status: Any, message: str) -> None:
    queue, launch = under_way(root, True)
    queue.store.write(replace(read_entry(queue.store.folder(launch.id)).info, status=status, message=message))
    found = queue.get(launch.id)
    assert (found.state, found.message) == (status, message) and not queue.has(launch.id)


def test_as_long_as_a_worker_has_the_lock_its_runs_go_on(queue: LaunchQueue) -> None:
    launch = queue.add(JOB)
    with queue.store.executing(launch.id):
        take(queue, launch)
        assert queue.ensure_worker() and queue.get(launch.id).state == "running" and queue.has(launch.id)


def test_who_cancelled_and_died_is_finished_by_the_next(root: Path) -> None:
    root.mkdir()
    queue = LaunchQueue(Store(root))
    with WorkerLock.take(root) or pytest.fail("somebody has the lock"):
        launch = queue.add(JOB)
    assert Markers(root).take(launch.id, "cancelled")
    assert queue.get(launch.id).state == "stopped" and Markers(root).taken("cancelled") == []


def test_workers_that_end_before_they_begin_are_not_started_for_ever(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    queue = LaunchQueue(Store(root))
    launch = queue.add(JOB)
    for _ in range(40):
        found = queue.get(launch.id)
        time.sleep(0.02)
    assert found.state == "queued", "nothing is lost"
    assert f"ended {FUTILE_STARTS} times before it began: see {root / 'launches.log'}" in found.message
    assert len((root / "launches.lock").read_bytes()) == FUTILE_STARTS
    os.utime(root / "launches.lock", (time.time() - 60,) * 2)
    assert queue.ensure_worker(), "after a while it is tried again"


# -- lab cancel ----------------------------------------------------------------------------------------------


def test_lab_cancel_ends_a_run_that_waits(queue: LaunchQueue, capsys: pytest.CaptureFixture[str]) -> None:
    launch = queue.add(JOB)
    assert main(["cancel", "latest", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"run": launch.id, "status": "stopped", "message": "cancelled before it began"}
    assert main(["cancel", launch.id]) == 2
    assert capsys.readouterr().err == f"lab: run {launch.id} does not go on: it is stopped.\n"


@pytest.mark.parametrize("command", ["show", "report", "export"])
def test_what_looks_at_a_run_that_waits_says_so(
    queue: LaunchQueue, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    queue.add(JOB)
    status = main([command, "latest", *([] if command == "show" else ["-o", str(tmp_path / "out")])])
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err and status in (0, 2), (status, out, err)
    if command == "show":
        assert "queued" in out


def test_lab_cancel_says_whose_a_run_is_that_the_queue_does_not_carry_out(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(root)
    with store.executing((info := store.create(JOB, ("lab", "run"))).id):
        assert main(["cancel", "latest"]) == 2
        err = capsys.readouterr().err
        assert f"run {info.id} is not from the queue: process {os.getpid()} on" in err and err.count("\n") == 1
    assert main(["cancel", "latest", "--json"]) == 2
    out, err = capsys.readouterr()
    assert f"run {info.id} does not go on: it is killed." in err and json.loads(out)["status"] == "refused"
    assert main(["cancel", "nobody"]) == 2
