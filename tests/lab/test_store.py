"""The run store: nothing that lies in the folder, and nobody else who uses it, may break it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from engine.job.job import Job
from engine.recording.parquet import finalize
from lab.facade import Run, load, runs
from lab.store.folder import Entry, Owner, RunInfo, write_info
from lab.store.store import Store, StoreError
from lab.store.stored_run import RunCorrupt, RunNotFound

SUMMARY = {
    "steps": [{"step": 0, "loss": 5.5, "seconds": 0.2}],
    "parity": {"passed": True},
    "schedule": "1f1b",
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def finished(store: Store, job: Job | None = None) -> RunInfo:
    """A run as `lab.running.execute` leaves it, with empty tables."""
    info = replace(store.create(job or Job(), ("test",)), status="finished")
    finalize(store.folder(info.id))
    (store.folder(info.id) / "summary.json").write_text(json.dumps(SUMMARY))
    store.write(info)
    return info


def status(store: Store, run_id: str) -> tuple[str, str]:
    """As a listing says, with the index and without it, which must agree."""
    listed = next(e.info for e in store.entries() if e.info.id == run_id)
    (store.root / "index.sqlite").unlink(missing_ok=True)
    assert listed == next(e.info for e in store.entries() if e.info.id == run_id)
    return listed.status, listed.message


def test_an_id_begins_with_the_time_and_says_the_plan(store: Store) -> None:
    info = store.create(Job.from_options(dp=2, tp=2, pp=2, zero=1), ())
    stamp, rest = info.id[:15], info.id[15:]
    assert abs(datetime.strptime(stamp, "%Y%m%d-%H%M%S") - datetime.now()) < timedelta(seconds=5)
    assert rest.startswith("-dp2tp2pp2-zero1-") and len(rest) == len("-dp2tp2pp2-zero1-ab12")


def test_a_taken_id_is_never_used_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr("lab.store.store.secrets.token_hex", lambda _: next(draws))
    monkeypatch.setattr("lab.store.store.datetime", _StoppedClock)
    assert [store.create(Job(), ()).id[-4:] for _ in range(2)] == ["aaaa", "bbbb"]


class _StoppedClock(datetime):
    @classmethod
    def now(cls, tz: object = None) -> datetime:
        return datetime(2026, 11, 29, 23, 47, 52)


def test_run_json_holds_job_environment_and_owner(store: Store) -> None:
    info = store.create(Job.from_options(tp=2), ("lab", "run", "--tp", "2"))
    written = json.loads((store.folder(info.id) / "run.json").read_text())
    assert written["status"] == "running" and written["command"] == ["lab", "run", "--tp", "2"]
    assert written["job"]["tp"] == 2 and written["owner"]["pid"] == os.getpid()
    assert written["environment"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert written["environment"]["torch"].startswith("2.")
    assert Job.from_toml(store.folder(info.id) / "job.toml") == Job.from_options(tp=2)


def test_a_finished_run_is_listed_with_its_numbers(store: Store) -> None:
    info = finished(store)
    (run,) = runs(store)
    assert (run.id, run.status, run.digest["loss"], run.digest["parity"]) == (info.id, "finished", 5.5, True)


def test_a_running_run_is_running_while_it_is_being_executed(store: Store) -> None:
    info = store.create(Job(), ())
    with store.executing(info.id):
        assert status(store, info.id)[0] == "running"
    assert status(store, info.id)[0] == "killed"


def test_a_run_whose_owner_has_died_reads_as_killed(store: Store) -> None:
    info = store.create(Job(), ())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        alive = replace(info, owner=replace(_owner_of(owner.pid)))
        store.write(alive)
        assert status(store, info.id)[0] == "running"
        owner.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet buried: a zombie
        assert status(store, info.id)[0] == "killed"
    assert status(store, info.id)[0] == "killed"


def _owner_of(pid: int) -> Owner:
    import psutil

    started = psutil.Process(pid).create_time()
    return Owner(pid, started, socket.gethostname(), started - psutil.boot_time())


def test_a_process_id_that_was_given_to_another_process_does_not_count(store: Store) -> None:
    info = store.create(Job(), ())
    parent = _owner_of(os.getppid())
    assert parent.since_boot is not None
    earlier = replace(parent, started=parent.started - 3600, since_boot=parent.since_boot - 3600)
    store.write(replace(info, owner=earlier))
    assert status(store, info.id)[0] == "killed"


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_run_goes_on_when_the_clock_is_set(store: Store, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    import psutil

    info = store.create(Job(), ())
    store.write(replace(info, owner=_owner_of(os.getppid())))
    started, booted = psutil.Process.create_time, psutil.boot_time  # as Linux tells them: both from today's clock
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: started(self) + 3600 * hours)
    monkeypatch.setattr(psutil, "boot_time", lambda: booted() + 3600 * hours)
    assert status(store, info.id)[0] == "running"


def test_of_a_run_on_another_host_nobody_here_says_that_it_died(store: Store) -> None:
    info = store.create(Job(), ())
    store.write(replace(info, owner=Owner(pid=2**22 - 1, started=1.0, host="elsewhere")))
    assert status(store, info.id)[0] == "running"


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("run.json", b"\x00\xffgarbage", "run.json cannot be read"),
        ("run.json", b"", "run.json cannot be read"),
        ("run.json", b"[]", "run.json cannot be read"),
        ("run.json", b'{"id": "x", "created": 3, "status": "finished"}', "run.json cannot be read: created"),
        ("run.json", None, "run.json is missing"),
        ("summary.json", None, "summary.json is missing"),
        ("summary.json", b'{"steps": [{"lo', "summary.json is not JSON"),
        ("summary.json", b"[1]", "summary.json is not the summary of a run"),
        ("ops.parquet", None, "ops.parquet is missing"),
        ("ops.parquet", b"PAR1 and then nothing", "ops.parquet is cut short"),
        ("memory.parquet", b"", "memory.parquet is cut short"),
    ],
)
def test_a_damaged_run_is_listed_as_corrupt_with_the_reason(
    store: Store, file: str, content: bytes | None, reason: str
) -> None:
    whole, broken = finished(store), finished(store)
    path = store.folder(broken.id) / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert status(store, whole.id) == ("finished", "")
    found, message = status(store, broken.id)
    assert found == "corrupt" and reason in message


def test_a_cut_table_of_an_old_listing_is_noticed(store: Store) -> None:
    info = finished(store)
    assert status(store, info.id)[0] == "finished"
    store.entries()
    path = store.folder(info.id) / "metrics.parquet"
    path.write_bytes(path.read_bytes()[:-7])
    assert status(store, info.id)[0] == "corrupt"


def test_damage_inside_a_table_is_reported_when_it_is_read(store: Store) -> None:
    info = finished(store)
    (store.folder(info.id) / "ops.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    run = load(info.id, store)
    with pytest.raises(RunCorrupt, match="tables of run"):
        run.ops  # noqa: B018


def test_other_things_in_the_folder_are_left_alone(store: Store) -> None:
    info = finished(store)
    (store.root / "notes.txt").write_text("mine")
    (store.root / "tensorboard").mkdir()
    (store.root / f".{info.id}").mkdir()
    assert [run.id for run in runs(store)] == [info.id]


@pytest.mark.parametrize("garbage", [b"no database", b"", b"SQLite format 3\x00" + bytes(4000)])
def test_a_broken_index_is_made_anew(store: Store, garbage: bytes) -> None:
    info = finished(store)
    store.entries()
    for path in store.root.glob("index.sqlite*"):
        path.unlink()
    (store.root / "index.sqlite").write_bytes(garbage)
    assert [run.id for run in runs(store)] == [info.id]
    assert [run.id for run in runs(store)] == [info.id]
    with sqlite3.connect(store.root / "index.sqlite") as base:
        assert base.execute("SELECT id FROM runs").fetchall() == [(info.id,)]
        assert base.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_an_index_that_lies_about_a_run_is_not_believed(store: Store) -> None:
    info = finished(store)
    store.entries()
    with sqlite3.connect(store.root / "index.sqlite") as base:
        base.execute("UPDATE runs SET entry = '{\"info\": 3}'")
    assert status(store, info.id)[0] == "finished"


def test_a_locked_index_delays_nobody_for_ever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.store.index._PATIENCE", 0.05)
    first = finished(store)
    store.entries()
    with sqlite3.connect(store.root / "index.sqlite") as base:
        base.execute("BEGIN EXCLUSIVE")
        second = finished(store)
        assert {run.id for run in runs(store)} == {first.id, second.id}


def test_a_deleted_run_disappears_from_the_list(store: Store) -> None:
    info, other = finished(store), finished(store)
    store.entries()
    folder = store.folder(info.id)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert [run.id for run in runs(store)] == [other.id]


WRITER = """
import sys
from engine.job.job import Job
from lab.store.store import Store
store = Store(sys.argv[1])
for _ in range(15):
    info = store.create(Job(), ())
    with store.executing(info.id):
        assert info.id in {entry.info.id for entry in store.entries()}
        assert not [e for e in store.entries() if e.info.status == "corrupt"]
"""


def test_several_processes_create_and_list_runs_at_once(store: Store) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", WRITER, str(store.root)]) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert [entry.info.status for entry in store.entries()] == ["killed"] * 45


def test_a_run_is_found_by_its_id_its_beginning_its_end_or_its_age(store: Store) -> None:
    infos = [
        replace(finished(store), created=f"2026-11-29T10:00:0{n}+00:00") for n in range(3)
    ]  # fmt: skip
    for info in infos:
        store.write(info)
    old, middle, new = (info.id for info in infos)
    assert store.find("latest").info.id == store.find("-1").info.id == new
    assert store.find("-3").info.id == old
    assert store.find(middle).info.id == middle
    assert store.find(middle[-4:]).info.id == middle
    assert load(-2, store).id == middle


def test_a_name_that_fits_several_runs_is_refused_with_their_ids(store: Store) -> None:
    ids = [finished(store).id for _ in range(2)]
    with pytest.raises(RunNotFound, match="fits 2 runs") as refused:
        store.find(ids[0][:8])
    assert all(run_id in str(refused.value) for run_id in ids)


@pytest.mark.parametrize(
    "name",
    ["../runs", "/etc", "..", ".", "a/b", "", "x" * 300, "-0", "-9", "nope", "latest/..", "~", "a\x00b", "*"],
)
def test_no_other_name_finds_anything(store: Store, name: str) -> None:
    finished(store)
    with pytest.raises(RunNotFound):
        store.find(name)


def test_an_empty_store_says_how_to_make_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="lab run"):
        Store(tmp_path / "nothing").find("latest")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=str(tmp_path / "file")):
        Store(tmp_path / "file" / "runs").create(Job(), ())


def test_the_root_is_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "here"))
    assert Store().root == tmp_path / "here"
    monkeypatch.delenv("SHARDLAB_RUNS")
    monkeypatch.chdir(tmp_path)
    assert Store().root == tmp_path / "runs"


def test_a_reader_never_sees_half_a_run_json(store: Store) -> None:
    info = store.create(Job(), ())
    write_info(store.folder(info.id), replace(info, message="m" * 10_000))
    names = {path.name for path in store.folder(info.id).iterdir()}
    assert names == {"run.json", "job.toml", "live"}
    assert json.loads((store.folder(info.id) / "run.json").read_text())["message"] == "m" * 10_000


def test_a_run_shows_itself_in_a_line_and_in_html(store: Store) -> None:
    info = finished(store, Job.from_options(dp=2, zero=2))
    run = Run(store.find(info.id), store)
    assert "✔ equal to one process" in repr(run) and "2 data × 1 tensor × 1 pipeline" in repr(run)
    assert info.id in run._repr_html_()
    failed = Run(Entry(replace(info, status="failed", message="<b>&"), {}), store)
    assert "&lt;b&gt;&amp;" in failed._repr_html_()


def test_what_is_written_is_what_is_read(store: Store) -> None:
    info = store.create(Job(), ("a", "b"))
    whole = replace(info, status="failed", message="näïve\nsecond line", resident_bytes=(1, 2), backend="gloo")
    store.write(whole)
    with store.executing(info.id):
        assert asdict(store.find(info.id).info) == asdict(whole)
