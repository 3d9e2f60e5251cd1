"""What becomes of the queue when its file or folder is damaged, locked, full or not to be written."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from lab.launcher.queue import LaunchQueue
from lab.launcher.table import LaunchTable
from lab.launcher.worker_lock import Seat
from lab.store.stored_run import Store, StoreError
from tests.lab.launch_queue.conftest import GONE, JOB, sql


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
    monkeypatch.setattr("lab.launcher.database._PATIENCE", 0.1)
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
