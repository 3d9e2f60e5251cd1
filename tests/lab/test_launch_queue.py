"""The queue of launches without a worker: the test itself has its seat, so whatever is added waits."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.job import Job, JobRefused
from lab.cli import main
from lab.execute import run_job
from lab.execution import Progress
from lab.folder import Owner
from lab.launch_queue import Launch, LaunchQueue
from lab.launch_seat import FUTILE_STARTS, Seat
from lab.launch_table import LaunchTable
from lab.launch_worker import Watched
from lab.notes import LONGEST_NAME, read_notes
from lab.runs import RunNotFound, Store, StoreError
from tests.lab.conftest import PretendedLaunch

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
    shutil.copy(Path(__file__).parents[2] / "engine" / "clusters" / "toy-2x4.toml", "mine.toml")
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


# -- damage --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("job", "[plan", "the job is not TOML"),
        ("job", "dp = 2", "the job is not TOML"),
        ("job", "[plan]\ndpp = 2", "there is no option called 'dpp'"),
        ("job", "[plan]\ndp = 'x; rm -rf /'", "dp='x; rm -rf /' is not valid"),
        ("job", b"\xff\xfe", "the job is not TOML"),
        ("parity", 7, "parity"),
    ],
)
def test_a_damaged_row_is_told_refused_and_disturbs_no_other(
    queue: LaunchQueue, table: LaunchTable, root: Path, column: str, value: object, words: str
) -> None:
    damaged, whole = queue.add(JOB), queue.add(JOB)
    sql(root, f"UPDATE launches SET {column} = ? WHERE id = ?", value, damaged.id)
    with pytest.raises(StoreError, match=f"launch {damaged.id} in .* cannot be read: ") as caught:
        queue.get(damaged.id)
    assert words in str(caught.value)
    assert [launch.id for launch in queue.launches()] == [whole.id]
    taken = table.take(GONE)
    assert taken is not None and taken.id == whole.id
    with closing(sqlite3.connect(root / "launches.sqlite")) as base:
        state, message = base.execute("SELECT state, message FROM launches WHERE id = ?", (damaged.id,)).fetchone()
    assert state == "refused" and message.startswith("what was wished cannot be read: ")


def test_a_worker_that_never_was_is_not_looked_for(queue: LaunchQueue, table: LaunchTable, root: Path) -> None:
    launch = queue.add(JOB)
    table.take(GONE)
    queue.cancel(launch.id)
    sql(root, "UPDATE launches SET pid = 'x', cancel_asked = 0")
    assert table.overdue(5) == [] and queue.ensure_worker()


def damaged(root: Path, how: str) -> None:
    path = root / "launches.sqlite"
    if how == "of another program":
        sql(root, "PRAGMA user_version = 77")
    elif how == "without its table":
        sql(root, "DROP TABLE launches")
    else:
        whole = path.read_bytes()
        path.write_bytes({"no database": b"x" * 5000, "empty": b"", "cut": whole[: len(whole) // 2 + 100]}[how])


@pytest.mark.parametrize("how", ["no database", "empty", "cut", "of another program", "without its table"])
def test_a_damaged_file_is_put_aside_with_words_and_the_queue_starts_anew(
    queue: LaunchQueue, root: Path, how: str
) -> None:
    for _ in range(30):  # several pages
        queue.add(JOB)
    damaged(root, how)
    left = (root / "launches.sqlite").read_bytes()
    with pytest.raises(StoreError, match=r"launches\.sqlite was damaged and is now launches-damaged-1\.sqlite"):
        queue.launches()
    assert (root / "launches-damaged-1.sqlite").read_bytes() == left
    assert queue.launches() == []
    assert [queue.add(JOB).id, queue.add(JOB).id] == [1, 2]


def test_two_who_find_the_damage_put_aside_only_the_damaged_file(queue: LaunchQueue, root: Path) -> None:
    """Each of many threads meets it at about the same time, and tries again as a dashboard does."""
    queue.add(JOB)
    damaged(root, "no database")
    heard: list[str] = []

    def wish() -> None:
        while True:
            try:
                queue.add(JOB)
                return
            except StoreError as error:
                heard.append(str(error))

    threads = [threading.Thread(target=wish) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(queue.launches()) == 8 and all("was damaged" in words for words in heard)
    assert [path.name for path in root.glob("launches-damaged-*")] == ["launches-damaged-1.sqlite"]


def test_a_locked_file_is_told_in_words(queue: LaunchQueue, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.launch_file._PATIENCE", 0.1)
    queue.add(JOB)
    with closing(sqlite3.connect(root / "launches.sqlite", isolation_level=None)) as base:
        base.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"launches\.sqlite is locked by another program: try again"):
            queue.add(JOB)
        assert len(queue.launches()) == 1, "looking goes on"
    assert queue.add(JOB).state == "queued"


def test_a_full_disk_is_told_in_words_and_loses_nothing(small_disk: Path) -> None:
    root = small_disk / "runs"
    root.mkdir()
    queue = LaunchQueue(Store(root))
    with Seat.take(root) or pytest.fail("somebody has the seat"):
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
        assert len(queue.launches(limit=2000)) == made
        assert queue.add(JOB).state == "queued"


def test_a_folder_that_cannot_be_written_is_told_in_words(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="set SHARDLAB_RUNS to another folder"):
        LaunchQueue(Store(tmp_path / "file" / "runs")).add(JOB)
    queue = LaunchQueue(Store(small_disk))
    with Seat.take(small_disk) or pytest.fail("somebody has the seat"):
        queue.add(JOB)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for act in (queue.launches, queue.ensure_worker, lambda: queue.add(JOB)):
        with pytest.raises(StoreError, match="set SHARDLAB_RUNS to another folder"):
            act()


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
