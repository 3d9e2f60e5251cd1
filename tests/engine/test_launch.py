"""Launching and ending runs, with real processes and real gloo."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from engine.processes.fork_server import client
from engine.processes.launch import RunCancelled, RunFailed, shutdown, warm
from tests.engine.launching import LIMIT, Sabotage, failure_of, left, members, run

pytestmark = pytest.mark.usefixtures("importable_targets")


# -- good runs ---------------------------------------------------------------------------------------------------


def test_eight_members_all_reduce_over_gloo(tmp_path: Path) -> None:
    events = run(tmp_path, members(8, "sums"))
    assert sorted(name for name, _ in events) == [member.name for member in members(8, "sums")]
    assert all(event == {"sum": 8.0} for _, event in events)


def test_many_short_runs_one_after_the_other_all_end_well(tmp_path: Path) -> None:
    for _ in range(5):
        assert len(run(tmp_path, members(3, "sums"))) == 3


def test_events_of_a_member_keep_their_order_and_none_is_lost(tmp_path: Path) -> None:
    events = run(tmp_path, members(3, "counts", events=2000, bytes=500))
    for member in members(3, "counts"):
        assert [event["number"] for name, event in events if name == member.name] == list(range(2000))


def test_a_slow_listener_loses_nothing_and_does_not_hold_the_members_up(tmp_path: Path) -> None:
    events = run(tmp_path, members(2, "counts", events=40, bytes=100_000), lambda _: time.sleep(0.005))
    assert len(events) == 80


def test_a_member_gets_its_payload_and_the_surroundings_of_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARDLAB_TEST", "set after the fork server started")
    events = run(tmp_path, members(2, "talks", plan={"tp": 2}))
    first = [event for name, event in events if name.startswith("rank 1")]
    assert first[0]["payload"] == {"plan": {"tp": 2}}
    assert (first[0]["index"], first[0]["size"]) == (1, 2)
    assert first[1] == {"cwd": str(tmp_path), "variable": "set after the fork server started", "threads": 1}
    assert not Path(first[0]["rendezvous"]).parent.exists()


def test_what_members_print_is_in_the_log_with_their_names(tmp_path: Path) -> None:
    run(tmp_path, members(2, "talks"))
    lines = (tmp_path / "log.txt").read_text().splitlines()
    for i in range(2):
        assert f"[rank {i} (data {i})] hello from Python" in lines
        assert f"[rank {i} (data {i})] hello from below, without a newline" in lines


def test_two_launches_at_once_from_two_threads(tmp_path: Path) -> None:
    sums: list[float] = []

    def one(size: int) -> None:
        (tmp_path / str(size)).mkdir()
        sums.extend(event["sum"] for _, event in run(tmp_path / str(size), members(size, "sums")))

    threads = [threading.Thread(target=one, args=(size,)) for size in (2, 3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == [2.0] * 2 + [3.0] * 3 + [4.0] * 4


@pytest.mark.timed
def test_a_run_leaves_no_process_file_descriptor_or_folder(tmp_path: Path) -> None:
    run(tmp_path, members(2, "talks"))
    this = psutil.Process()
    before = this.num_fds()
    events = run(tmp_path, members(4, "talks"))
    assert this.num_fds() == before
    (server,) = (child for child in this.children() if "engine.processes.fork_server.server" in child.cmdline())
    assert server.num_threads() == 1  # or it could not be forked safely
    assert not left([child.pid for child in server.children(recursive=True)])
    assert not any(Path(event["rendezvous"]).parent.exists() for _, event in events if "rendezvous" in event)


@pytest.mark.timed
def test_long_work_in_silence_and_a_finished_member_are_no_hang(tmp_path: Path) -> None:
    who = members(1, "works_in_silence", silence=60_000_000) + members(2, "works_then_finishes", seconds=0.6)
    run(tmp_path, who, hang_seconds=0.4)


# -- ending on purpose, and by force -------------------------------------------------------------------------------


@pytest.mark.timed
def test_cancel_from_another_thread_ends_the_run(tmp_path: Path) -> None:
    cancel = threading.Event()
    sabotage = Sabotage(4, lambda pids, supervisor: threading.Timer(0.1, cancel.set).start())
    with pytest.raises(RunCancelled):
        run(tmp_path, members(4, "troubled"), sabotage, cancel=cancel)
    sabotage.check()


@pytest.mark.timed
def test_an_interrupt_ends_the_run_before_it_propagates(tmp_path: Path) -> None:
    sabotage = Sabotage(4, lambda pids, supervisor: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, members(4, "troubled"), sabotage)
    assert not left(sabotage.pids, patience=0)
    sabotage.check()


@pytest.mark.timed
def test_an_error_in_the_listener_ends_the_run(tmp_path: Path) -> None:
    def fail(pids: list[int], supervisor: int) -> None:
        raise LookupError("the listener is broken")

    sabotage = Sabotage(2, fail)
    with pytest.raises(LookupError):
        run(tmp_path, members(2, "troubled"), sabotage)
    sabotage.check()


@pytest.mark.timed
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_supervisor_leaves_nobody(tmp_path: Path, how: int) -> None:
    cancel = threading.Event()

    def strike(pids: list[int], supervisor: int) -> None:
        os.kill(supervisor, how)
        if how == signal.SIGSTOP:
            cancel.set()

    sabotage = Sabotage(4, strike)
    with pytest.raises((RunFailed, RunCancelled)) as caught:
        run(tmp_path, members(4, "troubled"), sabotage, cancel=cancel)
    sabotage.check()
    assert how == signal.SIGSTOP or "the supervisor was killed" in str(caught.value)


@pytest.mark.timed
def test_a_killed_fork_server_ends_the_run(tmp_path: Path) -> None:
    def strike(pids: list[int], supervisor: int) -> None:
        os.kill(psutil.Process(supervisor).ppid(), signal.SIGKILL)

    failure = failure_of(tmp_path, Sabotage(3, strike), members(3, "troubled"))
    assert failure.member == "the fork server"


def test_a_fork_server_killed_between_runs_is_replaced_unnoticed(tmp_path: Path) -> None:
    for _ in range(2):  # one at rest, then one that has only just begun
        warm()
        server = client._state.server
        assert server is not None
        os.kill(server.process.pid, signal.SIGKILL)
    assert len(run(tmp_path, members(2, "sums"))) == 2


@pytest.mark.timed
def test_a_stopped_supervisor_is_named_and_its_run_ended(tmp_path: Path) -> None:
    sabotage = Sabotage(3, lambda pids, supervisor: os.kill(supervisor, signal.SIGSTOP))
    failure = failure_of(tmp_path, sabotage, members(3, "troubled"))
    assert failure.member == "the supervisor"
    assert "was stopped by a signal such as SIGSTOP" in failure.cause


@pytest.mark.timed
def test_a_supervisor_that_is_stopped_only_for_a_moment_goes_on(tmp_path: Path) -> None:
    def strike(pids: list[int], supervisor: int) -> None:
        os.kill(supervisor, signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (supervisor, signal.SIGCONT)).start()

    events = run(tmp_path, members(2, "works_then_finishes", seconds=1.0, hello=True), Sabotage(2, strike))
    assert len(events) == 2


@pytest.mark.timed
def test_a_fork_server_stopped_between_runs_is_named_and_the_next_run_starts_another(tmp_path: Path) -> None:
    for _ in range(2):  # one at rest, then one that has only just begun
        warm()
        server = client._state.server
        assert server is not None
        os.kill(server.process.pid, signal.SIGSTOP)
        at = time.monotonic()
        with pytest.raises(RunFailed, match="the fork server was stopped by a signal such as SIGSTOP"):
            run(tmp_path, members(2, "sums"))
        assert time.monotonic() - at < LIMIT
        assert not left([server.process.pid])
    assert len(run(tmp_path, members(2, "sums"))) == 2


@pytest.mark.timed
def test_a_fork_server_that_is_stopped_while_a_run_goes_on_is_no_reason_to_end_that(tmp_path: Path) -> None:
    servers = []

    def strike(pids: list[int], supervisor: int) -> None:
        servers.append(psutil.Process(supervisor).ppid())
        os.kill(servers[0], signal.SIGSTOP)

    try:
        who = members(2, "works_then_finishes", seconds=2.0, hello=True)
        assert len(run(tmp_path, who, Sabotage(2, strike))) == 2
    finally:
        os.kill(servers[0], signal.SIGCONT)


@pytest.mark.timed
def test_shutdown_ends_a_run_in_another_thread(tmp_path: Path) -> None:
    sabotage = Sabotage(2, lambda pids, supervisor: threading.Timer(0.05, shutdown).start())
    with pytest.raises(RunFailed):
        run(tmp_path, members(2, "troubled"), sabotage)
    sabotage.check()
