"""The queue of launches without a worker: the test itself has its seat, so whatever is added waits."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.job.errors import JobRefused
from engine.job.job import Job
from lab.cli.parser import main
from lab.launcher.queue import Launch, LaunchQueue
from lab.launcher.table import LaunchTable
from lab.launcher.worker import Watched
from lab.launcher.worker_lock import FUTILE_STARTS, Seat
from lab.running.execute import run_job
from lab.running.execution import Progress
from lab.store.folder import Owner
from lab.store.notes import LONGEST_NAME, read_notes
from lab.store.stored_run import RunNotFound, Store
from tests.lab.conftest import PretendedLaunch
from tests.lab.launch_queue.conftest import GONE, JOB

# -- order ---------------------------------------------------------------------------------------------------


def test_a_wish_comes_back_as_it_was_made(queue: LaunchQueue) -> None:
    added = queue.add(JOB, parity=False, name="  ZeRO\n  \x1b\u202e\ud800on two ")
    assert added.job == JOB and added.parity is False and added.name == "ZeRO on two"
    assert (added.state, added.run_id, added.ended, added.steps_done) == ("queued", None, None, 0)
    assert abs(datetime.fromisoformat(added.created).timestamp() - time.time()) < 60
    assert queue.get(added.id) == added == queue.launches()[0] == queue.active()[0]


def test_lists_are_newest_first_and_what_is_to_come_is_in_its_order(queue: LaunchQueue) -> None:
    made = [queue.add(JOB, name=name).id for name in "abc"]
    assert [launch.name for launch in queue.launches()] == ["c", "b", "a"]
    assert [launch.id for launch in queue.launches(limit=2)] == made[:0:-1]
    assert [launch.name for launch in queue.active()] == ["a", "b", "c"]


def test_many_takers_get_every_launch_once_and_the_oldest_first(queue: LaunchQueue, table: LaunchTable) -> None:
    made = [queue.add(JOB).id for _ in range(20)]
    taken: list[list[int]] = [[] for _ in range(4)]

    def take(mine: list[int]) -> None:
        while (launch := table.take(Owner.this_process())) is not None:
            mine.append(launch.id)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for mine in taken for number in mine) == made
    assert all(mine == sorted(mine) for mine in taken)


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


# -- cancelling ----------------------------------------------------------------------------------------------


def test_a_cancelled_wish_is_never_taken(queue: LaunchQueue, table: LaunchTable) -> None:
    first, second = queue.add(JOB), queue.add(JOB)
    cancelled = queue.cancel(first.id)
    assert cancelled.state == "stopped" and cancelled.message == "cancelled before it began" and cancelled.ended
    taken = table.take(GONE)
    assert taken is not None and taken.id == second.id and table.take(GONE) is None


def test_cancelling_what_is_under_way_only_asks(queue: LaunchQueue, table: LaunchTable) -> None:
    launch = queue.add(JOB)
    table.take(Owner.this_process())
    assert not table.cancel_asked(launch.id)
    asked = queue.cancel(launch.id)
    assert asked.state == "starting" and asked.cancelling and asked.active and table.cancel_asked(launch.id)


def test_cancelling_what_has_ended_changes_nothing(queue: LaunchQueue, table: LaunchTable) -> None:
    launch = queue.add(JOB)
    table.take(GONE)
    table.end(launch.id, "finished")
    ended = queue.get(launch.id)
    assert queue.cancel(launch.id) == ended and ended.state == "finished" and not ended.cancelling


@pytest.mark.parametrize("do", [LaunchQueue.get, LaunchQueue.cancel])
def test_a_launch_that_does_not_exist_is_told_in_words(queue: LaunchQueue, do: object) -> None:
    with pytest.raises(RunNotFound, match="there is no launch 7 in"):
        do(queue, 7)


def test_a_stopped_run_has_ended_though_its_tables_are_still_made(
    queue: LaunchQueue, table: LaunchTable, root: Path
) -> None:
    launch, store = queue.add(JOB), Store(root)
    table.take(GONE)
    info = store.create(JOB, ("lab",))
    with Watched(launch, table, store) as watched:
        watched(Progress(phase="ready", run_id=info.id, world_size=4, steps=3))
        running = queue.cancel(launch.id)
        assert running.state == "running" and running.run_id == info.id and watched.cancel.wait(10)
        store.write(replace(info, status="stopped"))
        stopped = queue.wait(launch.id, 10)
        assert (stopped.state, stopped.message) == ("stopped", "stopped by the user")
    table.end(launch.id, "failed", "by something later")
    assert queue.get(launch.id) == stopped


def test_a_run_gets_the_name_of_its_launch(queue: LaunchQueue, table: LaunchTable, root: Path) -> None:
    launch, store = queue.add(JOB, name="ZeRO\n on \ud800two " + 99 * "x"), Store(root)
    table.take(GONE)
    info = store.create(JOB, ("lab",))
    with Watched(launch, table, store) as watched:
        watched(Progress(phase="starting", run_id=info.id, world_size=4, steps=3))
    assert launch.name == read_notes(store.folder(info.id)).name == ("ZeRO on two " + 99 * "x")[:LONGEST_NAME]


# -- whoever looks -------------------------------------------------------------------------------------------


def test_who_only_looks_starts_nobody_and_writes_nothing(root: Path) -> None:
    before = psutil.Process().children()
    queue = LaunchQueue(Store(root))
    assert queue.launches() == queue.active() == [] and queue.ensure_worker() is False
    assert not root.exists() and psutil.Process().children() == before


def under_way(root: Path, worker: Owner = GONE) -> tuple[LaunchQueue, LaunchTable, Launch]:
    """A launch that a worker has taken, and the seat is free."""
    root.mkdir(exist_ok=True)
    queue, table = LaunchQueue(Store(root)), LaunchTable(root)
    with Seat.take(root) or pytest.fail("somebody has the seat"):
        launch = queue.add(JOB)
        table.take(worker)
    return queue, table, launch


def test_what_a_dead_worker_left_is_settled_by_whoever_looks_next(root: Path) -> None:
    queue, _, launch = under_way(root)
    found = queue.get(launch.id)
    assert found.state == "failed" and found.ended
    assert found.message == "the process that carried it out was killed, and the run with it"
    assert queue.get(launch.id) == found, "settled once"


@pytest.mark.parametrize(("status", "message"), [("failed", "rank 1 died"), ("stopped", "by the user")])
def test_a_run_that_was_over_before_its_worker_died_counts_as_it_ended(root: Path, status: Any, message: str) -> None:
    queue, table, launch = under_way(root)
    store = Store(root)
    info = store.create(JOB, ("lab",))
    store.write(replace(info, status=status, message=message))
    table.tell(launch.id, "running", info.id, 1)
    found = queue.get(launch.id)
    assert (found.state, found.message, found.run_id, found.steps_done) == (status, message, info.id, 1)


def test_a_run_that_had_finished_before_its_worker_died_counts_as_finished(pretended: PretendedLaunch) -> None:
    queue, table, launch = under_way(Store().root)
    run = run_job(JOB)
    table.tell(launch.id, "running", run.id, 3)
    assert queue.get(launch.id).state == "finished"


def test_as_long_as_a_worker_has_the_seat_its_launches_go_on(queue: LaunchQueue, table: LaunchTable) -> None:
    launch = queue.add(JOB)
    table.take(GONE)
    assert queue.ensure_worker() and queue.get(launch.id).state == "starting"


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


def test_lab_cancel_ends_a_launch_that_waits(queue: LaunchQueue, capsys: pytest.CaptureFixture[str]) -> None:
    launch = queue.add(JOB)
    assert main(["cancel", str(launch.id), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"run": None, "launch": 1, "status": "stopped", "message": "cancelled before it began"}
    assert main(["cancel", str(launch.id)]) == 2
    assert capsys.readouterr().err == "lab: launch 1 has ended already: it is stopped.\n"


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
