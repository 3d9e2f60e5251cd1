"""What the system has on record of processes, and whether they worked between two looks at that.

A thread that waits for a peer still polls: gloo's event loop and a wait for a file wake up a hundred times a second and
look. What tells work from that, however small the share of a core is that a starved process gets: it moves bytes, it
keeps a core for longer than a look takes, it is interrupted with more to do, or it is ready to run and has to wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RAN = 0.05  # share of the time above which a thread works; pollers were seen to use up to 0.01
LONG_TURN = 1e-3  # seconds on a core at a time, on average, that no poller needs: it was seen to need 0.00004


@dataclass(frozen=True, slots=True)
class Thread:
    """state: the letter that Linux has for it, "" if unknown. ran, waited: seconds on a core, and ready for one.
    turns: how often it got a core; interrupted: how often one was taken from it."""

    state: str = ""
    ran: float = 0.0
    waited: float = 0.0
    turns: int = 0
    interrupted: int = 0


@dataclass(frozen=True, slots=True)
class Activity:
    """transfers: calls that read or wrote something, sockets included; a poll makes none. threads: by their ids."""

    transfers: int
    threads: Mapping[int, Thread]


def activity(pid: int) -> Activity | None:
    """None where the system does not tell, or the process has ended."""
    threads = dict(_threads(pid))
    return Activity(_transfers(pid), threads) if threads else None


def together(processes: Iterable[Activity]) -> Activity:
    """Of a group. The system gives no id to two threads at once."""
    found = list(processes)
    return Activity(sum(one.transfers for one in found), {i: t for one in found for i, t in one.threads.items()})


def worked(before: Activity, after: Activity, seconds: float) -> bool:
    """Whether any thread did, or would have with a core of its own, in the `seconds` between two looks."""
    if after.transfers != before.transfers:
        return True
    return any(_worked(before.threads.get(id_, Thread()), thread, seconds) for id_, thread in after.threads.items())


def _worked(before: Thread, after: Thread, seconds: float) -> bool:
    ran, turns = after.ran - before.ran, after.turns - before.turns
    if after.state == "D" or ran >= RAN * seconds:  # D: it waits for a disk
        return True
    if turns == 0:
        return after.state == "R"
    return ran >= LONG_TURN * turns or 2 * (after.interrupted - before.interrupted) >= turns


def granted(before: Activity, after: Activity, seconds: float) -> float:
    """The share that the threads got of all the core time they could have used between two looks; 1 for none."""
    ran = waited = 0.0
    for id_, thread in after.threads.items():
        then = before.threads.get(id_, Thread())
        ran += thread.ran - then.ran
        starved = thread.state == "R" and (thread.turns, thread.ran) == (then.turns, then.ran)
        waited += seconds if starved else thread.waited - then.waited  # on record only once it gets its turn
    return ran / (ran + waited) if waited > 0 else 1.0


def _threads(pid: int) -> Iterator[tuple[int, Thread]]:
    with suppress(OSError):  # no such books here, or the process has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError, IndexError):  # the thread has
                yield int(task.name), _thread(task)


def _thread(task: Path) -> Thread:
    """From `/proc/PID/task/ID`, see proc(5). A kernel that keeps no `schedstat` still counts ticks."""
    stat = _text(task / "stat").rpartition(")")[2].split()
    with suppress(OSError, ValueError):
        ran, waited, turns = (int(number) for number in _text(task / "schedstat").split())
        if turns:
            switches = _text(task / "status").partition("nonvoluntary_ctxt_switches:")[2].split()
            return Thread(stat[0], ran / 1e9, waited / 1e9, turns, int(switches[0]) if switches else 0)
    return Thread(stat[0], (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"))


def _transfers(pid: int) -> int:
    with suppress(OSError, ValueError):
        lines = _text(Path(f"/proc/{pid}/io")).splitlines()
        counts = {name: int(count) for name, _, count in (line.partition(": ") for line in lines)}
        return counts.get("syscr", 0) + counts.get("syscw", 0)
    return 0


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
