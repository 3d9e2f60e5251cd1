"""Random processes of runs, killed or stopped at random times: told, ended, nobody left, nothing lost.

A few rounds of sorts drawn anew each time, or as many as `SHARDLAB_KILL_ROUNDS` says: ten have each sort of process and
signal once. `SHARDLAB_KILL_SEED=N` draws those of an earlier time.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lab
from engine.job.job import Job
from engine.processes.launch import Failure, RunCancelled, RunFailed, shutdown
from lab.facade import Run
from lab.launcher.queue import KILLED, STOPPED, UNANSWERED, LaunchQueue
from lab.store.store import Store
from tests.lab.victims import PATIENCE, PLAN, Victim, client, gone_after, in_time, left, strike, until

pytestmark = [pytest.mark.timed, pytest.mark.timeout(3600)]
ONLY_HERE = ("client", "SIGSTOP")
ALL = [
    ONLY_HERE, ("rank", "SIGKILL"), ("rank", "SIGSTOP"), ("supervisor", "SIGKILL"), ("supervisor", "SIGSTOP"),
    ("server", "SIGSTOP"), ("client", "SIGKILL"), ("worker", "SIGSTOP"),
    ("server", "SIGKILL"), ("worker", "SIGKILL"),
]  # fmt: skip
FEW = 4
"""Rounds where no number is set: `ONLY_HERE`, and three of the other sorts, each of which has a test of its own, of
launches, of real runs or of the queue.
"""
ENDINGS = {"failed", "killed", "stopped"}


def rounds(chance: random.Random) -> list[tuple[str, str]]:
    """(who, which signal) of each round."""
    wished = int(os.environ.get("SHARDLAB_KILL_ROUNDS", FEW))
    drawn = [ONLY_HERE, *chance.sample(ALL[1:], min(wished, len(ALL)) - 1)]
    drawn += [chance.choice(ALL) for _ in range(wished - len(ALL))]
    chance.shuffle(drawn)
    return drawn


def test_random_kills_and_stops_are_each_named_within_seconds_and_leave_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path))
    seed = int(os.environ.get("SHARDLAB_KILL_SEED") or secrets.randbelow(10**6))
    print(f"SHARDLAB_KILL_SEED={seed}")
    chance = random.Random(seed)
    kept = lab.run(steps=1)
    struck = rounds(chance)
    for number, (who, how) in enumerate(struck):
        began, seconds = time.monotonic(), chance.uniform(0.0, 0.7)
        took = ROUNDS[who](signal.Signals[how], seconds, chance)
        print(f"round {number + 1}: {how} to the {who}: {took:.2f} s, of {time.monotonic() - began:.1f}", flush=True)
    runs: list[Run] = lab.runs()
    never_began = [run for run in runs if "the fork server was stopped" in run.message]
    assert len(never_began) == struck.count(("server", "SIGSTOP"))
    assert len(runs) == 1 + len(struck) + len(never_began)
    assert {run.status for run in runs if run.id != kept.id} <= ENDINGS
    assert lab.load(kept.id).summary == kept.summary and lab.load(kept.id).status == "finished"
    assert all(run.recording.ops.num_rows > 0 for run in runs if run not in never_began), "what was done stays readable"


def _named(victim: Victim) -> Failure:
    assert isinstance(victim.error, RunFailed), victim.error
    assert lab.load().status == "failed" and lab.load().message == str(victim.error)
    return victim.error.failure


def strike_a_rank(how: signal.Signals, after: float, chance: random.Random) -> float:
    with Victim() as victim:
        time.sleep(after)
        at = strike(chance.choice(victim.ranks), how)
        assert victim.ended()
        took = time.monotonic() - at
    failure = _named(victim)
    assert failure.member.startswith("rank ") and failure.action, "the action it was in"
    assert f"was {'killed' if how == signal.SIGKILL else 'stopped'} by signal {how.name}" in failure.cause
    assert not left([*victim.ranks, victim.supervisor])
    return took


def strike_the_supervisor(how: signal.Signals, after: float, chance: random.Random) -> float:
    with Victim() as victim:
        time.sleep(after)
        at = strike(victim.supervisor, how)
        assert victim.ended()
        took = time.monotonic() - at
    failure = _named(victim)
    assert failure.member == "the supervisor"
    assert f"was {'killed' if how == signal.SIGKILL else 'stopped by a signal such as SIGSTOP'}" in failure.cause
    assert not left([*victim.ranks, victim.supervisor])
    return took


def strike_the_server(how: signal.Signals, after: float, chance: random.Random) -> float:
    """A run under way needs it only to be there; the next run needs it to answer."""
    with Victim() as victim:
        time.sleep(after)
        at = strike(victim.server, how)
        if how == signal.SIGKILL:
            assert victim.ended()
            took = time.monotonic() - at
        else:
            before = victim.steps
            until(lambda: victim.steps > before + 2)
    assert not left([*victim.ranks, victim.supervisor])
    if how == signal.SIGKILL:
        assert _named(victim).member == "the fork server"
        return took
    assert isinstance(victim.error, RunCancelled)
    at = time.monotonic()
    with pytest.raises(RunFailed, match="the fork server was stopped by a signal such as SIGSTOP"):
        lab.run(steps=1, parity=False)
    took = time.monotonic() - at
    assert took < in_time() and not left([victim.server])
    return took


def strike_the_client(how: signal.Signals, after: float, chance: random.Random) -> float:
    """Stopped, as by Ctrl-Z, it goes on later; killed, its run ends and its folder says so."""
    with client() as (process, everybody):
        time.sleep(after)
        at = strike(everybody[0], how)
        if how == signal.SIGSTOP:
            assert lab.load().status == "running", "others can still look"
            time.sleep(after)
            at = strike(everybody[0], signal.SIGCONT)
            process.send_signal(signal.SIGINT)
        assert not left(everybody[2:]), "the ranks and their supervisor"
        took = time.monotonic() - at
        process.wait(PATIENCE)  # one that was interrupted first sums up what was done
        assert not left(everybody)
        assert lab.load().status == ("killed" if how == signal.SIGKILL else "stopped")
        assert lab.load().message
    return took


def strike_the_worker(how: signal.Signals, after: float, chance: random.Random) -> float:
    queue = LaunchQueue(Store(), idle=1.0)
    launch = queue.add(Job.from_options(**PLAN), parity=False)
    until(lambda: queue.get(launch.id).steps_done > 0)
    worker = queue._markers.worker_of(launch.id)
    assert worker is not None
    with gone_after(worker.pid) as everybody:
        time.sleep(after)
        at = strike(everybody[0], how)
        if how == signal.SIGSTOP:
            until(lambda: queue.get(launch.id).message == STOPPED, in_time())
            queue.cancel(launch.id)
        ended = queue.wait(launch.id, in_time())
        if how == signal.SIGKILL:  # the supervisor may have said so before the queue looked
            assert ended.state == "killed" and (ended.message == KILLED or "went away" in ended.message)
        else:
            assert (ended.state, ended.message) == ("stopped", UNANSWERED)
        assert not left(everybody)
        return time.monotonic() - at


ROUNDS = {
    "rank": strike_a_rank,
    "supervisor": strike_the_supervisor,
    "server": strike_the_server,
    "client": strike_the_client,
    "worker": strike_the_worker,
}


@pytest.fixture(autouse=True, scope="module")
def _leave_no_server() -> Iterator[None]:
    """A server that a failed round left stopped would hang the tests that come after."""
    yield
    shutdown()
