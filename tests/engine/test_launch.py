"""Launching, supervision and faults, with real processes and real gloo.

The contract gives 3 s from a fault to the exception. `LIMIT` doubles it: the tests run on shared, noisy machines, and a
loop that were really broken would take the 60 s of the gloo timeout. Nothing else here asserts a time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.launch import Failure, Member, RunCancelled, RunFailed, launch, shutdown, warm
from engine.processes import nursery_client

HERE = Path(__file__).resolve().parent
LIMIT = 3.0 * 2
Events = list[tuple[str, dict[str, Any]]]


@pytest.fixture(autouse=True, scope="module")
def importable_targets() -> Iterator[None]:
    sys.path.append(str(HERE))
    yield
    sys.path.remove(str(HERE))


def members(count: int, function: str, **payload: Any) -> list[Member]:
    return [Member(f"rank {i} (data {i})", f"fake_ranks:{function}", payload) for i in range(count)]


def run(
    tmp_path: Path, who: list[Member], act: Callable[[Events], None] = lambda events: None, **options: Any
) -> Events:
    """Launch, and call `act` after each event."""
    events: Events = []

    def on_event(name: str, event: dict[str, Any]) -> None:
        events.append((name, event))
        act(events)

    launch(who, log_path=tmp_path / "log.txt", run_json=None, on_event=on_event, **options)
    return events


class Sabotage:
    """Strikes once all members of a run have said that they are up, and remembers when and who they were."""

    def __init__(self, size: int, strike: Callable[[list[int], int], None] = lambda pids, supervisor: None):
        self._size, self._strike = size, strike
        self.pids: list[int] = []
        self.supervisor = 0
        self.at = 0.0

    def __call__(self, events: Events) -> None:
        self.pids.append(events[-1][1]["pid"])
        self.supervisor = events[-1][1].get("supervisor", self.supervisor)
        if len(self.pids) == self._size:
            self.at = time.monotonic()
            self._strike(self.pids, self.supervisor)

    def check(self) -> None:
        """Call when the run has ended: in time, and with nobody left."""
        assert time.monotonic() - self.at < LIMIT
        assert len(self.pids) >= self._size
        assert not left([*self.pids, self.supervisor])


def left(pids: list[int], patience: float = 1.0) -> list[int]:
    """Who of them still runs. Without a parent that reaps it, a dead process may stay as a zombie."""
    deadline = time.monotonic() + patience
    while (alive := [pid for pid in pids if pid and _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill(index: int, number: int = signal.SIGKILL) -> Callable[[list[int], int], None]:
    return lambda pids, supervisor: os.kill(pids[index], number)


def failure_of(tmp_path: Path, sabotage: Sabotage, who: list[Member], **options: Any) -> Failure:
    with pytest.raises(RunFailed) as caught:
        run(tmp_path, who, sabotage, **options)
    sabotage.check()
    assert str(caught.value) == str(caught.value.failure)
    return caught.value.failure


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
    monkeypatch.setenv("SHARDLAB_TEST", "set after the nursery started")
    events = run(tmp_path, members(2, "talks", plan={"tp": 2}))
    first = [event for name, event in events if name.startswith("rank 1")]
    assert first[0]["payload"] == {"plan": {"tp": 2}}
    assert (first[0]["index"], first[0]["size"]) == (1, 2)
    assert first[1] == {"cwd": str(tmp_path), "variable": "set after the nursery started", "threads": 1}
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


def test_a_run_leaves_no_process_file_descriptor_or_folder(tmp_path: Path) -> None:
    run(tmp_path, members(2, "talks"))
    this = psutil.Process()
    before = this.num_fds()
    events = run(tmp_path, members(4, "talks"))
    assert this.num_fds() == before
    (nursery,) = (child for child in this.children() if "engine.processes.nursery" in child.cmdline())
    assert nursery.num_threads() == 1  # or it could not be forked safely
    assert not left([child.pid for child in nursery.children(recursive=True)])
    assert not any(Path(event["rendezvous"]).parent.exists() for _, event in events if "rendezvous" in event)


def test_long_work_in_silence_and_a_finished_member_are_no_hang(tmp_path: Path) -> None:
    who = members(1, "works_in_silence", silence=60_000_000) + members(2, "works_then_finishes", seconds=0.6)
    run(tmp_path, who, hang_seconds=0.4)


# -- failing members ---------------------------------------------------------------------------------------------


def test_a_killed_rank_ends_the_run_and_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, Sabotage(8, kill(5)), members(8, "troubled"))
    assert "killed by signal SIGKILL" in failure.cause
    assert failure.action.startswith("all_reduce")
    assert all("lost its connection" in other for other in failure.others)


@pytest.mark.parametrize(
    ("trouble", "cause", "words"),
    [
        ("raises", "raised ValueError: the loss is not a number", "in raises"),
        ("exits", "exited with status 3", "leaving early"),
        ("exits_politely", "exited with status 3", "SystemExit: 3"),
        ("vanishes", "exited before its work was done", ""),
        ("aborts", "killed by signal SIGABRT", "gloo::EnforceNotMet"),
        ("aborts", "killed by signal SIGABRT", "in aborts"),
        ("mismatches", "expected size. Is there a distributed collective mismatch", "in all_reduce"),
        ("emits_a_lambda", "raised", "in emits_a_lambda"),
        ("kills_itself", "killed by signal SIGKILL", ""),
    ],
)
def test_the_rank_that_failed_is_named_not_those_that_lost_their_peer(
    tmp_path: Path, trouble: str, cause: str, words: str
) -> None:
    sabotage = Sabotage(3)
    failure = failure_of(tmp_path, sabotage, members(3, "troubled", culprit=1, trouble=trouble))
    if trouble != "mismatches":  # gloo aborts whichever rank finds the mismatch first
        assert failure.member == "rank 1 (data 1)"
        assert failure.action == "forward block1 mb2"
    assert cause in failure.cause
    assert words in failure.traceback
    assert "_run" not in failure.traceback  # our own frames are nobody's business
    what, _, detail = failure.cause.partition(": ")
    assert f"{failure.member} {what} while in '{failure.action}'" in str(failure)
    assert detail in str(failure)


def test_an_error_raised_because_a_peer_is_gone_is_a_consequence(tmp_path: Path) -> None:
    who = members(2, "troubled", culprit=0, trouble="raises_from_lost_peer")
    who[1] = Member("rank 1", "fake_ranks:troubled", {"culprit": 1, "trouble": "raises"})
    failure = failure_of(tmp_path, Sabotage(2), who)
    assert failure.member == "rank 1"
    assert "lost its connection" in failure.others[0]


def test_a_target_that_does_not_exist_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(
        RunFailed, match=r"rank 0 .* raised ModuleNotFoundError while in 'starting': No module named 'nowhere'"
    ):
        run(tmp_path, [Member("rank 0 (data 0)", "nowhere:f", {})])
    with pytest.raises(ValueError, match=r"package\.module:function"):
        run(tmp_path, [Member("rank 0", "nowhere", {})])


def test_what_a_failed_member_started_ends_too(tmp_path: Path) -> None:
    sabotage = Sabotage(3)  # two ranks and the child of one
    failure = failure_of(tmp_path, sabotage, members(2, "troubled", culprit=1, trouble="has_a_child_and_raises"))
    assert "ValueError" in failure.cause


# -- standing still ----------------------------------------------------------------------------------------------


def test_a_stopped_rank_is_a_hang_and_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, Sabotage(4, kill(2, signal.SIGSTOP)), members(4, "troubled"))
    assert "was stopped by signal SIGSTOP" in failure.cause
    assert len(failure.others) == 3


def test_a_sleeping_rank_is_a_hang_and_shows_where_it_sleeps(tmp_path: Path) -> None:
    who = members(3, "troubled", culprit=2, trouble="sleeps")
    failure = failure_of(tmp_path, Sabotage(3), who, hang_seconds=0.8)
    assert failure.member == "rank 2 (data 2)"
    assert "made no progress" in failure.cause
    assert "in sleeps" in failure.traceback
    assert "rank 0 (data 0) was waiting in 'all_reduce 3'" in failure.others


def test_a_rank_that_never_joins_is_a_hang_though_the_others_poll_for_it(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, Sabotage(8), members(8, "never_joins"), hang_seconds=0.8)
    assert failure.member == "rank 1 (data 1)"
    assert failure.others[0] == "rank 0 (data 0) was waiting in 'joining the others'"


def test_a_deadlock_lists_who_waits_for_what_though_one_has_finished(tmp_path: Path) -> None:
    with pytest.raises(RunFailed) as caught:
        run(tmp_path, members(3, "deadlocks"), hang_seconds=0.8)
    failure = caught.value.failure
    assert "deadlock" in failure.cause
    assert failure.action == "recv act mb0 <- rank 1"
    assert failure.others == ("rank 1 (data 1) was waiting in 'recv act mb0 <- rank 0'",)


def test_a_rank_that_spins_is_ended_by_the_longer_limit(tmp_path: Path) -> None:
    who = members(2, "troubled", culprit=1, trouble="spins")
    failure = failure_of(tmp_path, Sabotage(2), who, hang_seconds=0.3, spin_seconds=1.0)
    assert failure.member == "rank 1 (data 1)"
    assert "in spins" in failure.traceback


# -- two groups --------------------------------------------------------------------------------------------------


def beside(function: str, **payload: Any) -> Member:
    return Member("reference", f"fake_ranks:{function}", payload, group="reference")


def test_a_stopped_rank_is_named_though_a_second_group_makes_progress(tmp_path: Path) -> None:
    ranks = members(4, "troubled", ranks=4, culprit=2, trouble="stops_itself")
    failure = failure_of(tmp_path, Sabotage(4), [*ranks, beside("works_then_finishes", seconds=60)])
    assert failure.member == "rank 2 (data 2)"
    assert "was stopped by signal SIGSTOP" in failure.cause
    assert len(failure.others) == 3  # the ranks that wait for it; the reference has no part in it


def test_a_stopped_reference_is_named_though_the_ranks_make_progress(tmp_path: Path) -> None:
    who = [*members(2, "troubled", ranks=2), beside("stops_itself")]
    failure = failure_of(tmp_path, Sabotage(2), who)
    assert (failure.member, failure.others) == ("reference", ())


def test_ranks_that_wait_for_a_slow_reference_are_no_hang(tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    who = [*members(2, "awaits_a_file", file=file), beside("leaves_a_file", file=file, seconds=4)]
    assert len(run(tmp_path, who, hang_seconds=0.8)) == 2


def test_a_rank_stopped_while_it_waits_for_the_reference_is_named(tmp_path: Path) -> None:
    who = members(3, "awaits_a_file", file=str(tmp_path / "file"), culprit=1)
    failure = failure_of(tmp_path, Sabotage(3), [*who, beside("works_then_finishes", seconds=60)])
    assert failure.member == "rank 1 (data 1)"
    assert "was stopped by signal SIGSTOP" in failure.cause


def test_waiting_for_what_a_reference_that_has_ended_did_not_leave_is_a_hang(tmp_path: Path) -> None:
    who = members(2, "awaits_a_file", file=str(tmp_path / "file"))
    failure = failure_of(tmp_path, Sabotage(2), [*who, beside("quiet")], hang_seconds=0.8)
    assert failure.action == "waiting for the file"
    assert "all that it could wait for had ended" in failure.cause


# -- ending on purpose, and by force -------------------------------------------------------------------------------


def test_cancel_from_another_thread_ends_the_run(tmp_path: Path) -> None:
    cancel = threading.Event()
    sabotage = Sabotage(4, lambda pids, supervisor: threading.Timer(0.1, cancel.set).start())
    with pytest.raises(RunCancelled):
        run(tmp_path, members(4, "troubled"), sabotage, cancel=cancel)
    sabotage.check()


def test_an_interrupt_ends_the_run_before_it_propagates(tmp_path: Path) -> None:
    sabotage = Sabotage(4, lambda pids, supervisor: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, members(4, "troubled"), sabotage)
    assert not left(sabotage.pids, patience=0)
    sabotage.check()


def test_an_error_in_the_listener_ends_the_run(tmp_path: Path) -> None:
    def fail(pids: list[int], supervisor: int) -> None:
        raise LookupError("the listener is broken")

    sabotage = Sabotage(2, fail)
    with pytest.raises(LookupError):
        run(tmp_path, members(2, "troubled"), sabotage)
    sabotage.check()


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


def test_a_killed_nursery_ends_the_run(tmp_path: Path) -> None:
    def strike(pids: list[int], supervisor: int) -> None:
        os.kill(psutil.Process(supervisor).ppid(), signal.SIGKILL)

    failure = failure_of(tmp_path, Sabotage(3, strike), members(3, "troubled"))
    assert failure.member == "the fork server"


def test_a_nursery_killed_between_runs_is_replaced_unnoticed(tmp_path: Path) -> None:
    for _ in range(2):  # one at rest, then one that has only just begun
        warm()
        nursery = nursery_client._state.nursery
        assert nursery is not None
        os.kill(nursery.process.pid, signal.SIGKILL)
    assert len(run(tmp_path, members(2, "sums"))) == 2


def test_shutdown_ends_a_run_in_another_thread(tmp_path: Path) -> None:
    sabotage = Sabotage(2, lambda pids, supervisor: threading.Timer(0.05, shutdown).start())
    with pytest.raises(RunFailed):
        run(tmp_path, members(2, "troubled"), sabotage)
    sabotage.check()


# -- clients that are scripts ----------------------------------------------------------------------------------------


class Script:
    """A learner's script without a main guard, running in a process group of its own as in a terminal."""

    def __init__(self, tmp_path: Path, body: str) -> None:
        source = f"""
            import json, os, signal, sys, threading, time
            from pathlib import Path
            sys.path.append({str(HERE)!r})
            from engine.launch import Member, launch
            here = Path({str(tmp_path)!r})

            def tell(name, event):
                print(json.dumps(event), flush=True)

            def go(size, function, **payload):
                everyone = [Member(f"rank {{i}}", f"fake_ranks:{{function}}", payload) for i in range(size)]
                launch(everyone, log_path=here / "log.txt", run_json=here / "run.json", on_event=tell)
        """
        self.run_json = tmp_path / "run.json"
        self.run_json.write_text(json.dumps({"status": "running", "job": {"dp": 2}}))
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(source) + textwrap.dedent(body))
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def pids(self, count: int) -> list[int]:
        """Of the members that have said they are up, their supervisor and the nursery."""
        assert self.process.stdout is not None
        found = [json.loads(self.process.stdout.readline()) for _ in range(count)]
        supervisor = found[0]["supervisor"]
        return [event["pid"] for event in found] + [supervisor, psutil.Process(supervisor).ppid()]

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


def test_a_script_without_main_guard_runs_once_and_leaves_nobody(tmp_path: Path) -> None:
    script = Script(tmp_path, "print('once')\ngo(2, 'sums')\nassert 'torch' not in sys.modules\n")
    code, out, err = script.end()
    assert (code, err) == (0, "")
    assert out.splitlines() == ["once", '{"sum": 2.0}', '{"sum": 2.0}']
    assert json.loads(script.run_json.read_text())["status"] == "running"


def test_a_killed_client_leaves_nobody_and_the_run_says_so(tmp_path: Path) -> None:
    script = Script(tmp_path, "go(4, 'troubled')\n")
    pids = script.pids(4)
    script.process.kill()
    assert not left(pids)
    script.end()
    record = json.loads(script.run_json.read_text())
    assert record == {
        "status": "killed",
        "message": "the program that started this run went away",
        "job": {"dp": 2},
    }


def test_ctrl_c_reaches_the_script_alone_and_leaves_nobody(tmp_path: Path) -> None:
    script = Script(tmp_path, "go(4, 'troubled')\n")
    pids = script.pids(4)
    os.killpg(script.process.pid, signal.SIGINT)
    code, _, err = script.end()
    assert code == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not left(pids)
    assert json.loads(script.run_json.read_text())["status"] == "running"  # the client's to write


def test_a_forked_child_of_the_client_neither_disturbs_nor_keeps_a_run_alive(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        from multiprocessing import get_context
        def strike():
            go(2, "sums")
            time.sleep(1000)
        children = []
        def tell(name, event):
            print(json.dumps(event), flush=True)
            if len(children) == 0:
                children.append(get_context("fork").Process(target=strike))
                children[0].start()
        go(2, "troubled")
        """,
    )
    assert script.process.stdout is not None
    events = [json.loads(script.process.stdout.readline()) for _ in range(4)]
    assert sum(event == {"sum": 2.0} for event in events) == 2
    pids = [event["pid"] for event in events if "pid" in event]
    (child,) = (p for p in psutil.Process(script.process.pid).children() if "nursery" not in str(p.cmdline()))
    script.process.kill()
    assert not left(pids)
    assert child.is_running()
    child.kill()
    script.end()


def test_a_run_in_a_daemon_thread_ends_with_the_script(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        up = threading.Semaphore(0)
        def tell(name, event):
            print(json.dumps(event), flush=True)
            up.release()
        threading.Thread(target=go, args=(2, "troubled"), daemon=True).start()
        up.acquire(), up.acquire(), time.sleep(0.5)
        """,
    )
    pids = script.pids(2)
    script.end()
    assert not left(pids)
    assert json.loads(script.run_json.read_text())["status"] == "killed"
