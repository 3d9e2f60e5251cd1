"""One run's supervisor: forks the members, watches them, reports to the client, and leaves nobody behind.

A single thread around one selector. It ends, and with it every member, when the run is over, when a member fails or
stands still, when the client asks, and when the client or the fork server goes away.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NoReturn

from engine.plain_file import RECORD, read_plain
from engine.processes import root_cause
from engine.processes.channel import CANCEL, DONE, EVENT, FAILED, RAISED, STARTED, Channel, Request
from engine.processes.child_process import Child, adopt_orphans, kill_adopted, kill_all
from engine.processes.root_cause import SERVER, Failure, Grade, Trouble
from engine.processes.status.board import Phase, StatusBoard
from engine.processes.status.hang import HangWatch
from engine.processes.worker_process import DUMP_SIGNAL, Task
from engine.whole_file import write_whole

COLLECT = 0.3  # seconds from the first sign of trouble until the cause is named: the others' reports come in
DUMP_WAIT = 0.15  # seconds for a stuck member to print its stack


class Outcome(Enum):
    DONE = "done"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"


def supervise(sock: socket.socket, server: int) -> NoReturn:
    """Run one request read from `sock`, then exit. `server` is a pipe that ends when the fork server does."""
    try:
        client = Channel(sock)
        request = _read_request(client)
        if request is not None:
            Supervisor(request, client, server).run()
    except BaseException:
        traceback.print_exc()  # to the fork server's own log; the client sees the socket end
    finally:
        os._exit(0)  # the members hang on this process: none outlives it


def _read_request(client: Channel) -> Request | None:
    """What to run; None if the client has gone or thought better of it."""
    while not client.closed:
        select.select([client], [], [])
        frames = client.take(all_of_it=True)
        if any(frame.kind == CANCEL for frame in frames):
            return None
        for frame in frames:
            request: Request = pickle.loads(frame.body)
            return request
    return None


class Supervisor:
    def __init__(self, request: Request, client: Channel, server: int) -> None:
        self._request, self._client, self._server = request, client, server
        place = request.status_path
        self._board = StatusBoard(request.names, None if place is None else Path(place))
        self._children: list[Child] = []
        self._troubles: list[Trouble] = []
        self._cancelled = False
        self._news_of_children = True
        self._log = os.open(request.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._wake, self._wake_writer = os.pipe()
        for end in (self._wake, self._wake_writer):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # it need only be heard, through the wake-up pipe
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)

    def run(self) -> None:
        self._client.put(STARTED, 0, pickle.dumps(os.getpid()))
        self._settle_in()
        adopt_orphans()
        try:
            outcome = Outcome.ABANDONED if self._client.closed else self._start() or self._watch()
        finally:
            kill_all(self._children)
            kill_adopted()
            shutil.rmtree(self._request.folder, ignore_errors=True)
        if outcome is Outcome.ABANDONED:
            mark_killed(self._request.run_json)
        elif outcome is Outcome.DONE:
            self._client.put(DONE)
        elif isinstance(outcome, Failure):
            self._client.put(FAILED, 0, pickle.dumps(outcome))
        self._flush()

    # -- starting ------------------------------------------------------------------------------------------------

    def _settle_in(self) -> None:
        """Take the client's surroundings, for this run only: the fork server keeps its own."""
        sys.path[:] = self._request.sys_path
        os.environ.clear()
        os.environ.update(self._request.environ)
        with contextlib.suppress(OSError):
            os.chdir(self._request.cwd)

    def _start(self) -> Failure | None:
        """Fork every member. They share the read end of a pipe whose only writer is this process."""
        lifeline, self._life = os.pipe()
        for index, name in enumerate(self._request.names):
            try:
                self._children.append(self._fork(index, lifeline))
            except OSError as error:  # no more processes, or no more file descriptors
                return Failure(name, "", f"could not be started: {error}", "", ())
        os.close(lifeline)
        return None

    def _fork(self, index: int, lifeline: int) -> Child:
        request = self._request
        rendezvous = str(Path(request.folder) / "rendezvous")
        task = Task(index, len(request.names), request.targets[index], request.payloads, rendezvous)
        return Child.start(task, request.names[index], self._board.slot(index), lifeline, self._log, self._let_go)

    def _let_go(self) -> None:
        """In a new member: close all that is the supervisor's. A copy left open would hide the end of a process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._client.close()
        for sibling in self._children:
            sibling.close()
        for end in (self._log, self._life, self._server, self._wake, self._wake_writer):
            os.close(end)

    # -- watching ------------------------------------------------------------------------------------------------

    def _watch(self) -> Outcome | Failure:
        """Wait until the run has ended, one way or another."""
        hang, spin = self._request.hang_seconds, self._request.spin_seconds
        watches = {group: HangWatch(self._board, hang, spin) for group in self._request.groups}
        deadline = float("inf")
        self._selector = self._register()
        while self._living():
            self._pump(HangWatch.TICK)
            if self._cancelled:
                return Outcome.CANCELLED
            if self._client.closed:
                return Outcome.ABANDONED
            if self._troubles:
                deadline = min(deadline, time.monotonic() + COLLECT)
                if time.monotonic() >= deadline:
                    break
                continue
            for group, watch in watches.items():
                suspects = self._suspects(group)
                pids, stopped = {one.index: one.pid for one in suspects}, any(one.stopped for one in suspects)
                if suspects and (seconds := watch.stuck(pids, stopped=stopped)) is not None:
                    return self._stuck(group, suspects, seconds)
        return self._failure() if self._troubles else Outcome.DONE

    def _living(self) -> list[Child]:
        return [child for child in self._children if not child.ended]

    def _suspects(self, group: str) -> list[Child]:
        """Who of the group has to make progress now: not those that wait for another group, while one is at work."""
        groups, living = self._request.groups, self._living()
        patient = {c.index for c in living if self._board.phase(c.index) is Phase.AWAITING and not c.stopped}
        if not any(groups[child.index] != group and child.index not in patient for child in living):
            patient.clear()  # there is nobody to wait for
        return [child for child in living if groups[child.index] == group and child.index not in patient]

    def _register(self) -> selectors.BaseSelector:
        selector = selectors.DefaultSelector()
        selector.register(self._client, selectors.EVENT_READ, self._on_client)
        selector.register(self._server, selectors.EVENT_READ, self._on_server)
        selector.register(self._wake, selectors.EVENT_READ, self._on_signal)
        for child in self._children:
            selector.register(child.channel, selectors.EVENT_READ, partial(self._on_member, child))
            selector.register(child.output, selectors.EVENT_READ, partial(self._on_output, child))
        return selector

    def _pump(self, timeout: float) -> None:
        """Wait for something to happen, and take it in."""
        if not self._client.closed:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._client.pending else 0)
            self._selector.modify(self._client, wanted, self._on_client)
        for key, _ in self._selector.select(timeout):
            key.data()
        if self._news_of_children:
            self._news_of_children = False
            for child in self._living():
                self._reap(child)

    def _on_client(self) -> None:
        self._client.flush()
        self._cancelled = any(frame.kind == CANCEL for frame in self._client.take()) or self._cancelled
        if self._client.closed:
            self._selector.unregister(self._client)

    def _on_server(self) -> None:
        """The fork server is gone. If the client is too, its socket says so before the cause is named."""
        self._selector.unregister(self._server)
        self._troubles.append(Trouble(SERVER, Grade.SERVER, "was killed, and the run with it"))

    def _on_signal(self) -> None:
        self._news_of_children = True
        os.read(self._wake, 4096)

    def _on_member(self, child: Child) -> None:
        self._take(child)
        if child.channel.closed:
            self._selector.unregister(child.channel)

    def _on_output(self, child: Child) -> None:
        child.output.read()
        if child.output.closed:
            self._selector.unregister(child.output)

    def _take(self, child: Child, *, all_of_it: bool = False) -> None:
        for frame in child.channel.take(all_of_it=all_of_it):
            if frame.kind == EVENT:
                self._client.put(EVENT, child.index, frame.body)
                continue
            child.settled = True
            if frame.kind == RAISED:
                self._troubles.append(root_cause.raised(child.index, pickle.loads(frame.body)))

    def _reap(self, child: Child) -> None:
        """See whether it has ended, and why. What it still said comes first: it may have said that it was done."""
        code = child.reap()
        if code is None:
            return
        self._take(child, all_of_it=True)
        child.output.read_all()
        if not child.settled:
            self._troubles.append(root_cause.died(child.index, code, child.output.tail()))

    # -- judging -------------------------------------------------------------------------------------------------

    def _failure(self) -> Failure:
        return root_cause.failure(self._troubles, self._request.names, self._board)

    def _stuck(self, group: str, suspects: list[Child], seconds: float) -> Failure:
        """Name who keeps the group from going on, with its Python stack if it can still print one."""
        living = [child for child in self._living() if self._request.groups[child.index] == group]
        notes = {child.index: self._board.read(child.index) for child in living}
        stopped = {child.index: child.stopped for child in suspects if child.stopped}
        child = self._children[root_cause.culprit({one.index: notes[one.index] for one in suspects}, stopped)]
        if not child.stopped:
            os.kill(child.pid, DUMP_SIGNAL)
            deadline = time.monotonic() + DUMP_WAIT
            while (left := deadline - time.monotonic()) > 0:
                self._pump(left)
        words = child.output.tail()
        return root_cause.stuck(child.index, seconds, self._request.names, notes, stopped, words)

    # -- ending --------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Hand over what is left. A client busy with earlier events may take its time; a dead one ends the wait."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._client, selectors.EVENT_WRITE)
            while self._client.pending:
                selector.select()
                self._client.flush()


def mark_killed(run_json: str | None) -> None:
    """Nobody is left to write how the run ended, so note it in its file, in one step, keeping all else."""
    if run_json is None:
        return
    path = Path(run_json)
    with contextlib.suppress(OSError, ValueError, TypeError):  # not there, or not ours: leave it as it is
        record = json.loads(read_plain(path, RECORD))
        record |= {"status": "killed", "message": "the program that started this run went away"}
        write_whole(path, json.dumps(record, indent=2))
