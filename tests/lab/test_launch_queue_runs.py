"""The queue with real workers and real ranks: who carries out what, and that nobody is left however it ends."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import lab
from engine.job.job import Job
from lab.cli.parser import main
from lab.facade import load, runs
from lab.launcher.queue import Launch, LaunchQueue
from lab.launcher.worker_lock import WorkerLock
from lab.store.notes import read_notes
from lab.store.stored_run import Store

SHORT = Job.from_options(dp=2, steps=2)
LONG = Job.from_options(dp=2, steps=100_000)
GONE_WITHIN = 3.0  # seconds in which whoever is killed or cancelled has to be gone
PATIENCE = 120.0  # for what takes as long as it takes, on a machine that others use too

WISHES = """
import sys, time
from engine.job.job import Job
from lab.launcher.queue import LaunchQueue
queue = LaunchQueue(idle=1.0)
for number in range(int(sys.argv[2])):
    queue.add(Job.from_options(steps=int(sys.argv[3])), parity=False, name=f"{sys.argv[1]}{number}")
print("wished", flush=True)
time.sleep(float(sys.argv[4]))
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store of its own, in which no worker is left."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("SHARDLAB_RUNS", str(folder))
    yield folder
    for worker in workers(folder):
        everybody = family(worker)
        for process in everybody:
            process.kill()
        psutil.wait_procs(everybody, GONE_WITHIN)


@pytest.fixture
def queue(root: Path) -> LaunchQueue:
    return LaunchQueue(Store(root), idle=60.0)


def workers(root: Path) -> list[psutil.Process]:
    """As the system lists them."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if "lab.launcher.worker" in line and str(root) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def family(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def alive(processes: list[psutil.Process], within: float = GONE_WITHIN) -> list[psutil.Process]:
    """Who of them still runs after so many seconds."""
    _, left = psutil.wait_procs(processes, timeout=within)
    return [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def until(true: Callable[[], object], within: float = PATIENCE) -> None:
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def training(queue: LaunchQueue, launch: Launch) -> tuple[Launch, list[psutil.Process]]:
    """The launch past its first step, and all processes of the worker, its ranks among them."""
    until(lambda: queue.get(launch.id).steps_done > 0)
    (worker,) = workers(queue.store.root)
    everybody = family(worker)
    assert len(everybody) >= 3 + launch.job.world_size, "worker, fork server, supervisor and the ranks"
    return queue.get(launch.id), everybody


def test_a_launch_trains_as_a_run_does_and_the_next_finds_torch_loaded(queue: LaunchQueue, root: Path) -> None:
    launch = queue.wait(queue.add(SHORT, name="first").id, PATIENCE)
    assert (launch.state, launch.message, launch.steps_done) == ("finished", "", 2)
    run, by_hand = load(launch.id, Store(root)), lab.run(job=SHORT)
    assert read_notes(run.folder).name == "first", "the run is called what its launch was"
    assert run.job == SHORT and run.summary["parity"]["passed"] is True
    assert [step["loss"] for step in run.steps] == [step["loss"] for step in by_hand.steps]
    (worker,) = workers(root)
    before = family(worker)
    assert queue.wait(queue.add(SHORT).id, PATIENCE).state == "finished"
    assert family(worker) == before, "the same worker, the same process with torch loaded, and nobody else"


def test_a_worker_leaves_when_there_is_nothing_to_do(root: Path) -> None:
    queue = LaunchQueue(Store(root), idle=0.5)
    launch = queue.add(SHORT, parity=False)
    (worker,) = workers(root)
    assert os.getsid(worker.pid) == worker.pid, "a terminal's Ctrl-C does not reach it"
    assert queue.wait(launch.id, PATIENCE).state == "finished"
    assert not alive(family(worker) if worker.is_running() else [], within=PATIENCE)
    assert queue.active() == [] and not workers(root), "to look starts nobody"


@pytest.mark.timed
def test_a_cancelled_run_is_stopped_at_once_and_leaves_no_process(queue: LaunchQueue) -> None:
    launch, everybody = training(queue, queue.add(LONG, parity=False))
    queue.cancel(launch.id)
    stopped = queue.wait(launch.id, GONE_WITHIN)
    assert (stopped.state, stopped.message) == ("stopped", "stopped by the user")
    assert not alive(everybody)
    run = load(launch.id, queue.store)
    assert run.status == "stopped" and len(run.steps) >= 1


def test_a_launch_that_is_cancelled_before_it_begins_leaves_no_process(queue: LaunchQueue, root: Path) -> None:
    launch = queue.add(LONG, parity=False)
    (worker,) = workers(root)
    assert queue.cancel(launch.id).state in ("stopped", "running")
    assert queue.wait(launch.id, PATIENCE).state == "stopped"
    assert not alive([worker], PATIENCE)


@pytest.mark.timed
def test_lab_cancel_stops_a_run_by_its_name(queue: LaunchQueue, capsys: pytest.CaptureFixture[str]) -> None:
    launch, everybody = training(queue, queue.add(LONG, parity=False))
    assert main(["cancel", "latest", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["run"], told["status"]) == (launch.id, "stopped")
    assert not alive(everybody)


@pytest.mark.timed
def test_a_killed_worker_takes_its_ranks_along_and_the_next_launch_runs(queue: LaunchQueue) -> None:
    launch, everybody = training(queue, queue.add(LONG, parity=False))
    following = queue.add(SHORT, parity=False)
    os.kill(everybody[0].pid, signal.SIGKILL)
    assert not alive(everybody)
    killed = queue.get(launch.id)
    assert killed.state == "killed" and "was killed, and the run with it" in killed.message
    assert load(killed.id, queue.store).status == "killed"
    assert queue.wait(following.id, PATIENCE).state == "finished"


def test_kills_at_any_moment_lose_no_launch_and_run_none_twice(queue: LaunchQueue, root: Path) -> None:
    chance = random.Random(7)
    made = [queue.add(SHORT, parity=False).id for _ in range(5)]
    kills = 0
    while queue.active():
        time.sleep(chance.uniform(0.1, 2.5))
        for worker in workers(root) if kills < 4 else []:
            worker.kill()
            kills += 1
    ended = [queue.get(number) for number in made]
    assert {launch.state for launch in ended} <= {"finished", "killed", "failed"}
    assert sum(launch.state != "finished" for launch in ended) <= kills
    assert sorted(run.id for run in runs(queue.store)) == sorted(made), "each has one folder"


@pytest.mark.timed
def test_a_worker_that_hangs_is_ended_with_all_its_processes(root: Path) -> None:
    queue = LaunchQueue(Store(root), answer_within=0.5)
    launch, everybody = training(queue, queue.add(LONG, parity=False))
    for process in everybody[:2]:  # it, and the process that its ranks hang on
        process.suspend()
    queue.cancel(launch.id)
    ended = queue.wait(launch.id, PATIENCE)
    assert ended.state == "stopped" and "did not answer and was ended" in ended.message
    assert not alive(everybody)


def test_a_worker_that_was_stopped_between_runs_is_replaced(root: Path) -> None:
    queue = LaunchQueue(Store(root), idle=PATIENCE)
    assert queue.wait(queue.add(SHORT, parity=False).id, PATIENCE).state == "finished"
    (first,) = workers(root)
    first.suspend()
    assert queue.wait(queue.add(SHORT, parity=False).id, PATIENCE).state == "finished"
    assert not alive([first]) and len(workers(root)) == 1


@pytest.mark.timed
def test_of_many_workers_started_at_once_one_stays(root: Path) -> None:
    root.mkdir()
    command = [sys.executable, "-m", "lab.launcher.worker", str(root)]
    started = [subprocess.Popen(command, env=os.environ | {"SHARDLAB_LAUNCH_IDLE": "60"}) for _ in range(4)]
    until(lambda: [process.poll() for process in started].count(0) == 3)
    (stays,) = (process for process in started if process.poll() is None)
    assert [worker.pid for worker in workers(root)] == [stays.pid]
    everybody = family(psutil.Process(stays.pid))
    stays.terminate()
    stays.wait(PATIENCE)
    assert not alive(everybody)


def wishing(name: str, count: int, steps: int, stays: float = 0.0) -> subprocess.Popen[str]:
    """Another program that wishes runs, and then stays for so many seconds."""
    words = [name, str(count), str(steps), str(stays)]
    return subprocess.Popen([sys.executable, "-c", WISHES, *words], stdout=subprocess.PIPE, text=True)


def test_three_programs_that_wish_at_once_lose_nothing_and_nothing_runs_twice(root: Path) -> None:
    queue = LaunchQueue(Store(root), idle=1.0)
    programs = [wishing(name, 3, 1) for name in "abc"]
    assert [program.communicate()[0] for program in programs] == ["wished\n"] * 3
    assert len(workers(root)) == 1
    ended = [queue.wait(run.id, PATIENCE) for run in runs(queue.store)]
    assert sorted(launch.name for launch in ended) == [f"{name}{number}" for name in "abc" for number in range(3)]
    assert {launch.state for launch in ended} == {"finished"}
    assert len(runs(queue.store)) == 9


@pytest.mark.timed
def test_a_run_goes_on_when_the_program_that_wished_it_is_killed(queue: LaunchQueue) -> None:
    with wishing("server", 1, 100_000, stays=PATIENCE) as server:
        assert server.stdout is not None and server.stdout.readline() == "wished\n"
        server.kill()
    (launch,) = queue.active()
    launch, everybody = training(queue, launch)
    before = launch.steps_done
    until(lambda: queue.get(launch.id).steps_done > before)
    queue.cancel(launch.id)
    assert queue.wait(launch.id, GONE_WITHIN).state == "stopped" and not alive(everybody)


def test_a_job_that_no_longer_can_run_is_refused_and_the_next_runs(queue: LaunchQueue, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be " * 2000)
    queue.store.root.mkdir()
    with WorkerLock.take(queue.store.root) or pytest.fail("somebody has the lock"):
        gone, following = queue.add(Job.from_options(text=str(text))), queue.add(SHORT, parity=False)
        text.unlink()
    assert queue.wait(following.id, PATIENCE).state == "finished"
    refused = queue.get(gone.id)
    assert refused.state == "failed" and "is not a file that exists" in refused.message
