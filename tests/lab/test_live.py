"""Following runs: real ones watched while they go on, and whatever may happen to their folders."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest

import lab
from engine.job.job import Job
from engine.recording.tables import MetricRow
from lab import analysis
from lab.facade import Run
from lab.live import TOTAL, LiveRun, Snapshot
from lab.store.store import Store
from lab.views.timeline import timeline_data

PATIENCE = 120.0  # seconds, generous: nothing here is about speed


@pytest.fixture(autouse=True)
def fresh_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))


@contextlib.contextmanager
def running(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], LiveRun]]:
    """A run in another process, and its follower."""
    before = {path.name for path in Store().folders()}
    command = [sys.executable, "-m", "lab.cli", "run", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + PATIENCE
            while not (found := {path.name for path in Store().folders()} - before):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            yield process, LiveRun(Store(), found.pop())
        finally:
            process.kill()


@contextlib.contextmanager
def running_here(**options: Any) -> Iterator[LiveRun]:
    """Follows a run in another thread, whose ranks need no fork server of their own."""
    before, cancel = {path.name for path in Store().folders()}, Event()
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(lab.run, cancel=cancel, **options)
        try:
            deadline = time.monotonic() + PATIENCE
            while not (found := {path.name for path in Store().folders()} - before):
                assert not made.done() and time.monotonic() < deadline
                time.sleep(0.02)
            yield LiveRun(Store(), found.pop())
        finally:
            cancel.set()


def follow(live: LiveRun, until: int | None = None) -> list[Snapshot]:
    """Looks until `until` steps are whole, or else until the run has ended."""
    seen: list[Snapshot] = []
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        seen.append(live.refresh())
        done = seen[-1].info.status != "running"
        if done or (until is not None and len(seen[-1].steps) >= until):
            return seen
        time.sleep(0.01)
    raise AssertionError(seen[-1])


@pytest.mark.parametrize("plan", [{"dp": 2, "zero": 2}, {"tp": 2, "pp": 2}])
def test_what_was_seen_of_a_run_while_it_went_on_is_what_its_tables_say(plan: dict[str, int]) -> None:
    options = [word for name, value in plan.items() for word in (f"--{name}", str(value))]
    with running(*options, "--steps", "12") as (process, live):
        seen = follow(live)
        assert process.wait(PATIENCE) == 0
    run, end = lab.load(), seen[-1]
    at_work = [s for s in seen if s.info.status == "running" and s.recording is not None]
    by_step = {s.latest_step: s for s in at_work}
    assert len(by_step) > 2, "it was seen at several steps"
    for snapshot in by_step.values():
        assert_as_in_the_tables(snapshot, run)
    assert_useful(at_work[len(at_work) // 2], run)
    assert {r.phase for s in at_work for r in s.ranks} >= {"computing", "waiting"}
    assert any(r.action.startswith("forward block") for s in at_work for r in s.ranks)
    assert all([r.rank for r in s.ranks] == list(range(run.job.world_size)) for s in seen)
    assert (end.info.status, end.problem, end.latest_step, end.eta_seconds) == ("finished", "", 11, None)
    assert {(r.phase, r.step) for r in end.ranks} == {("done", 11)}
    assert list(end.reference_losses) == run.recording.metrics["reference_loss"].to_pylist()
    assert end.seconds == run.summary["wall_s"]
    assert_as_in_the_tables(end, run)
    assert_useful(end, run)
    assert {row["rank"]: row["total_peak"] for row in run.summary["memory"]["per_rank"]} == {
        rank: peak[TOTAL] for rank, peak in end.memory_peak.items()
    }


def assert_as_in_the_tables(snapshot: Snapshot, run: Run) -> None:
    """Everything a snapshot says up to its step, from the rows of the finished run, the plain way."""
    step, recording = snapshot.latest_step, snapshot.recording
    assert step is not None and recording is not None and snapshot.steps_wanted == 12
    assert [row._replace(reference_loss=0.0) for row in snapshot.steps] == [
        row._replace(reference_loss=0.0) for row in _metrics(run)[: len(snapshot.steps)]
    ]
    assert 0 < len(snapshot.steps) <= step + 2  # who writes them down may lag behind the ranks
    whole = [row for row in run.ops if row["step"] == step]
    key = ("rank", "seq")
    assert sorted(recording.ops.to_pylist(), key=lambda r: [r[k] for k in key]) == whole
    sent = {axis: [0] * run.job.world_size for axis in snapshot.bytes_so_far}
    for row in run.ops:
        if row["step"] <= step and row["group"]:
            sent[row["group"]][row["rank"]] += row["logical_bytes"]
    assert snapshot.bytes_so_far == {axis: tuple(numbers) for axis, numbers in sent.items()}
    held = {rank: dict.fromkeys(now, 0) for rank, now in snapshot.memory_now.items()}
    peak = {rank: dict.fromkeys(most, 0) for rank, most in snapshot.memory_peak.items()}
    for row in run.memory_table:
        if row["step"] <= step:
            mine, most = held[row["rank"]], peak[row["rank"]]
            mine[row["category"]] = row["bytes"]
            most[row["category"]] = max(most[row["category"]], row["bytes"])
            most[TOTAL] = max(most[TOTAL], sum(mine.values()))
    assert (snapshot.memory_now, snapshot.memory_peak) == (held, peak)


def _metrics(run: Run) -> list[MetricRow]:
    return [MetricRow(**row) for row in run.recording.metrics.to_pylist()]


def assert_useful(snapshot: Snapshot, run: Run) -> None:
    """The step's recording says of the step what the whole run's says."""
    step, recording = snapshot.latest_step, snapshot.recording
    assert step is not None and recording is not None
    assert analysis.typical_step(recording) == step
    assert analysis.bubble(recording, run.job, step) == analysis.bubble(run.recording, run.job, step)
    assert analysis.ledger(recording, run.job, step) == analysis.ledger(run.recording, run.job, step)
    ours, theirs = (timeline_data(r, run.job, step) for r in (recording, run.recording))
    assert ours["layers"] == theirs["layers"] and ours["summary"] == theirs["summary"]
    for rank in range(run.job.world_size):
        _, held = analysis.memory_over_time(recording, rank)
        now = snapshot.memory_now[rank]
        assert dict(zip(now, held[:, -1].tolist(), strict=True)) == now


def test_the_reference_is_known_from_the_beginning_when_it_was_kept() -> None:
    known = lab.run(dp=2, steps=12).recording.metrics["reference_loss"].to_pylist()
    with running_here(tp=2, steps=12) as live:
        seen = follow(live)
    first = next(s for s in seen if s.reference_losses)
    assert first.info.status == "running" and not first.steps and list(first.reference_losses) == known


def test_a_run_that_is_killed_keeps_its_last_state() -> None:
    with running("--dp", "2", "--pp", "2", "--steps", "100000", "--no-parity") as (process, live):
        follow(live, until=3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        end = follow(live)[-1]
    assert (end.info.status, end.problem) == ("killed", "") and end.eta_seconds is None
    assert end.latest_step is not None and end.latest_step >= 2 and end.reference_losses == ()
    assert all(r.phase != "done" and r.action and r.step is not None for r in end.ranks)
    assert end.seconds == sum(row.seconds for row in end.steps)
    again = LiveRun(Store(), end.info.id).refresh()
    assert again.recording is not None and end.recording is not None
    assert again.recording.ops.equals(end.recording.ops)
    run = lab.load()
    assert_useful(end, run)


def test_a_run_that_fails_is_read_from_its_tables() -> None:
    with running("--dp", "2", "--steps", "100000", "--no-parity") as (process, live):
        follow(live, until=3)
        ranks = [p for p in psutil.Process(process.pid).children(recursive=True) if not p.children()]
        ranks[0].kill()
        end = follow(live)[-1]
        assert process.wait(PATIENCE) == 1
    end = live.refresh()
    run = lab.load()
    assert (end.info.status, end.problem) == ("failed", "") and "SIGKILL" in end.info.message
    assert [row.step for row in end.steps] == [row["step"] for row in run.steps]
    assert len(end.ranks) == 2 and all(r.action for r in end.ranks), "what they did last, since somebody looked"
    assert {r.phase for r in LiveRun(Store(), run.id).refresh().ranks} == {"unknown"}


def test_a_folder_that_is_deleted_while_the_run_goes_on_is_told_and_what_was_seen_stays() -> None:
    with running_here(dp=2, steps=100_000, parity=False) as live:
        before = follow(live, until=2)[-1]
        shutil.rmtree(Store().folder(before.info.id))
        after = live.refresh()
    assert after.problem.endswith("is gone.") and before.info.id in after.problem
    assert after.steps == before.steps and after.recording is before.recording


def test_there_is_no_such_run(tmp_path: Path) -> None:
    snapshot = LiveRun(Store(tmp_path), "20260101-000000-dp1tp1pp1-zero0-0000").refresh()
    assert snapshot.problem.endswith("is gone.") and snapshot.steps == () and snapshot.recording is None


def test_a_run_that_has_not_begun_has_wishes_and_no_steps(tmp_path: Path) -> None:
    store = Store(tmp_path)
    info = store.create(Job.from_options(dp=2, steps=7), ())
    with store.executing(info.id):
        snapshot = LiveRun(store, info.id).refresh()
    assert (snapshot.info.status, snapshot.problem, snapshot.steps_wanted) == ("running", "", 7)
    assert {r.phase for r in snapshot.ranks} == {"starting"} and len(snapshot.ranks) == 2
    assert snapshot.latest_step is None and snapshot.eta_seconds is None and snapshot.seconds >= 0


def test_a_simulated_run_has_its_step_and_no_ranks_at_work() -> None:
    run = lab.simulate(dp=2, tp=2, cluster="a100-dgx", keep=True)
    snapshot = LiveRun(Store(), run.id).refresh()
    assert (snapshot.info.status, snapshot.problem, snapshot.latest_step) == ("simulated", "", 0)
    assert snapshot.recording is not None and snapshot.recording.stands_for == run.recording.stands_for
    assert timeline_data(snapshot.recording, run.job)["layers"] == timeline_data(run.recording, run.job)["layers"]
