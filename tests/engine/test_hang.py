"""Starved is not hung: whoever works, or would if it got a core, is no reason to end a run; whoever only polls is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from engine.processes.status.activity import Activity, Thread, granted, worked
from engine.processes.status.board import StatusBoard
from engine.processes.status.hang import HangWatch

linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such books, and no such scheduler")
PATIENCE = 0.3  # seconds of the watch in these tests

ON_ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
IDLE_CLASS = f"{ON_ONE_CORE}; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"
FOR_EVER = "\nwhile True: pass"
POLLS = "\nimport time\nwhile True: time.sleep(0.01)"
PASSES_ON = """
import os, sys, time
while byte := os.read(0, 1):
    time.sleep(0.02)
    os.write(1, byte)
"""


@contextmanager
def program(code: str, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.DEVNULL) -> Iterator[int]:
    """The id of a process that carries out `code`, and has begun to."""
    ready, begun = os.pipe()
    told = f"import os; os.write({begun}, b'.'); os.close({begun}){code}"
    command = [sys.executable, "-I", "-S", "-c", told]
    with subprocess.Popen(command, stdin=stdin, stdout=stdout, pass_fds=[begun]) as process:
        os.close(begun)
        assert os.read(ready, 1)
        os.close(ready)
        try:
            yield process.pid
        finally:
            if sys.platform == "linux":
                os.sched_setscheduler(process.pid, os.SCHED_OTHER, os.sched_param(0))  # the killed need a turn to end
            process.kill()


def judged(pids: list[int], seconds: float) -> float | None:
    """What a watch says of members that never say a word, within so many seconds."""
    board = StatusBoard([str(pid) for pid in pids])
    for index in range(len(pids)):
        board.slot(index).waiting()
    watch, deadline = HangWatch(board, PATIENCE, 300.0), time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (stuck := watch.stuck(dict(enumerate(pids)), stopped=False)) is not None:
            return stuck
        time.sleep(0.01)
    return None


@linux
def test_a_member_that_other_programs_keep_from_every_core_is_not_called_hung() -> None:
    """SCHED_IDLE: it gets a core for some milliseconds a second, and for whole seconds none."""
    with program(f"; {ON_ONE_CORE}{FOR_EVER}"), program(f"; {IDLE_CLASS}{FOR_EVER}") as starved:
        assert judged([starved], 2.5) is None


@linux
def test_members_that_take_short_turns_are_judged_together() -> None:
    """As in an all-reduce of many ranks: each sleeps nearly all the time, and yet a message is under way."""
    with ExitStack() as stack:
        (a, b), (c, d) = os.pipe(), os.pipe()
        pids = [stack.enter_context(program(PASSES_ON, stdin=a, stdout=d)),
                stack.enter_context(program(PASSES_ON, stdin=c, stdout=b))]  # fmt: skip
        os.write(b, b".")
        assert judged(pids, 1.5) is None
        for end in (a, b, c, d):
            os.close(end)


@linux
@pytest.mark.timed
def test_members_that_only_poll_are_called_hung() -> None:
    with program(POLLS) as poller, program(POLLS) as other:
        assert judged([poller, other], 6.0) is not None


def test_the_limit_of_a_spinning_member_leaves_out_what_other_programs_take() -> None:
    before = Activity(0, {1: Thread("R", ran=1.0, waited=2.0, turns=5), 2: Thread("R", ran=4.0, turns=9)})
    after = Activity(0, {1: Thread("R", ran=1.1, waited=2.4, turns=6), 2: Thread("R", ran=4.0, turns=9)})
    assert granted(before, after, 0.5) == pytest.approx(0.1 / (0.1 + 0.4 + 0.5))  # the second never had a turn
    assert granted(before, before, 0.0) == 1.0


@pytest.mark.parametrize(
    ("then", "is_work"),
    [
        (Thread("S", ran=1.0, turns=10), False),
        (Thread("S", ran=1.004, turns=110), False),  # polls
        (Thread("R", ran=1.004, turns=110), False),  # polls, just now
        (Thread("S", ran=1.05, turns=110), True),
        (Thread("S", ran=1.002, turns=11), True),  # one turn, longer than a poll needs
        (Thread("R", ran=1.0, turns=10), True),  # waits for a core
        (Thread("D", ran=1.0, turns=10), True),  # waits for a disk
        (Thread("R", ran=1.001, turns=13, interrupted=3), True),
    ],
)
def test_work_is_told_from_polls_by_what_the_system_has_on_record(then: Thread, is_work: bool) -> None:
    before = Activity(7, {1: Thread("S", ran=1.0, turns=10)})
    assert worked(before, Activity(7, {1: then}), 1.0) is is_work
    assert worked(before, Activity(8, {1: then}), 1.0), "a byte has moved"
