"""The client's side of a run: start members, hear their events, and get one clear error when something goes wrong.

`launch` asks the fork server (a process with torch loaded, one per client process, see
`engine.processes.fork_server.server`) for a supervisor, and follows it. Nothing here imports torch, so a client stays
light and may fork.
"""

from __future__ import annotations

import os
import pickle
import re
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.processes.channel import CANCEL, DONE, EVENT, FAILED, REQUEST, STARTED, Channel, Frame, Request
from engine.processes.fork_server.client import (
    RANK_ENVIRONMENT,
    ForkServer,
    NotTaken,
    give_up,
    open_run,
    shutdown,
    warm,
)
from engine.processes.root_cause import Failure
from engine.processes.stopped import LOOK, StopWatch, is_stopped
from engine.processes.worker_process import MemberContext

__all__ = [
    "Failure", "Member", "MemberContext", "RunCancelled", "RunFailed", "launch", "shutdown", "warm",
]  # fmt: skip

CANCEL_CHECK = 0.05  # seconds between looks at `cancel`
END_WAIT = 1.5  # seconds for a supervisor to end its members, which takes it some ms
START_WAIT = 0.8  # seconds for one to appear: while torch is still being imported there is nothing to end

_TARGET = re.compile(r"[\w.]+:\w+")


@dataclass(frozen=True)
class Member:
    """One process to run. `target` is "package.module:function", called with a `MemberContext`; `payload` is
    pickled. `name` is how messages call it: "rank 3 (data 1, tensor 1, pipeline 0)".

    The members of a `group` work together: each group must make progress of its own, or it hangs."""

    name: str
    target: str
    payload: dict[str, Any]
    group: str = "ranks"


class RunFailed(RuntimeError):
    """A member failed, and the run was ended. The message is `str(failure)`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


class RunCancelled(RuntimeError):
    """The run was ended because `cancel` was set."""


def launch(
    members: Sequence[Member],
    *,
    log_path: Path,
    run_json: Path | None,
    status_path: Path | None = None,
    on_event: Callable[[str, dict[str, Any]], None],
    cancel: threading.Event | None = None,
    hang_seconds: float = 2.0,
    spin_seconds: float = 300.0,
    preload: Sequence[str] = (),
) -> None:
    """Run all members, each in a process of its own, and return when all have ended well.

    Raises `RunFailed` if one fails or the run stands still, `RunCancelled` if `cancel` gets set. However it ends,
    interrupts included, no process of the run is left. `on_event(member name, event)` is called in this thread.
    `run_json` is touched only if this process dies: its "status" then becomes "killed". `status_path` becomes the file
    in which others can see what each member is doing (`engine.processes.status.board.read_board`), if one can be made
    there. `preload`: modules that a fork server which has to be started loads before it forks.
    """
    _check(members)
    log_path.open("ab").close()  # whoever cannot write there should hear it here
    folder = tempfile.mkdtemp(prefix="shardlab-")
    try:
        request = Request(
            names=tuple(member.name for member in members),
            targets=tuple(member.target for member in members),
            groups=tuple(member.group for member in members),
            payloads=pickle.dumps([member.payload for member in members]),
            folder=folder,
            log_path=str(log_path.resolve()),
            run_json=None if run_json is None else str(run_json.resolve()),
            status_path=None if status_path is None else str(status_path.resolve()),
            hang_seconds=hang_seconds,
            spin_seconds=spin_seconds,
            sys_path=tuple(sys.path),
            environ=os.environ | RANK_ENVIRONMENT,
            cwd=str(Path.cwd()),
        )
        try:
            _run(request, preload, on_event, cancel)
        except NotTaken:  # the fork server died between two runs: once more, with a new one
            _run(request, preload, on_event, cancel)
    except NotTaken as error:
        raise RunFailed(Failure("the fork server", "", "could not start the run", str(error), ())) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the supervisor does it too, unless it was killed


def _check(members: Sequence[Member]) -> None:
    if not members:
        raise ValueError("a run needs at least one member")
    for member in members:
        if not _TARGET.fullmatch(member.target):
            raise ValueError(f"the target {member.target!r} is not of the form 'package.module:function'")


def _run(
    request: Request,
    preload: Sequence[str],
    on_event: Callable[[str, dict[str, Any]], None],
    cancel: threading.Event | None,
) -> None:
    """One try at the request."""
    with open_run(preload) as (sock, server):
        _Run(sock, server, request).follow(on_event, cancel)


class _Run:
    """A run in flight, seen from the client."""

    def __init__(self, sock: socket.socket, server: ForkServer, request: Request) -> None:
        self._channel, self._server, self._request = Channel(sock), server, request
        self._supervisor: int | None = None  # its process id, once it has taken the request
        self._ended = False
        self._watch = StopWatch()

    def follow(self, on_event: Callable[[str, dict[str, Any]], None], cancel: threading.Event | None) -> None:
        try:
            self._channel.put(REQUEST, 0, pickle.dumps(self._request))
            while not self._ended:
                self._wait(LOOK if cancel is None else CANCEL_CHECK)
                if cancel is not None and cancel.is_set():
                    raise RunCancelled("the run was cancelled")
                for frame in self._channel.take():
                    self._handle(frame, on_event)
                if self._channel.closed and not self._ended:
                    raise self._lost()
                self._check_helpers()
        except BaseException:  # Ctrl-C, or an error in `on_event`, are as good a reason as a failed member
            self._end()
            raise

    def _check_helpers(self) -> None:
        """Raises `RunFailed` if whoever has to go on now is stopped: the supervisor, or the server that is to fork one.

        Both lead sessions of their own, so Ctrl-Z in a terminal does not reach them."""
        taken = self._supervisor is not None
        if self._ended or (seconds := self._watch.too_long(self._supervisor or self._server.process.pid)) is None:
            return
        if not taken:
            give_up(self._server)
        name, loss = ("the supervisor", "the run with it") if taken else ("the fork server", "no run can begin")
        cause = f"was stopped by a signal such as SIGSTOP, and {loss}: it did nothing for {seconds:.1f} s"
        raise RunFailed(Failure(name, "", cause, "", ()))

    def _wait(self, timeout: float) -> None:
        """Until there is something to read, sending what is left to send meanwhile."""
        waiter = select.poll()
        waiter.register(self._channel, select.POLLIN | (select.POLLOUT if self._channel.pending else 0))
        waiter.poll(timeout * 1000)
        self._channel.flush()

    def _handle(self, frame: Frame, on_event: Callable[[str, dict[str, Any]], None]) -> None:
        if frame.kind == EVENT:
            name = self._request.names[frame.member]
            on_event(name, _event(name, frame.body))
        elif frame.kind == STARTED:
            self._supervisor = pickle.loads(frame.body)
        elif frame.kind == FAILED:
            raise RunFailed(pickle.loads(frame.body))
        elif frame.kind == DONE:
            self._ended = True

    def _lost(self) -> Exception:
        words = self._server.last_words()
        if self._supervisor is None:
            return NotTaken(words)
        return RunFailed(Failure("the supervisor", "", "was killed, and the run with it", words, ()))

    def _end(self) -> None:
        """Have every member killed, and wait for it: the supervisor exits, and so closes its end, only then."""
        stopped = is_stopped(self._supervisor or self._server.process.pid)
        self._channel.put(CANCEL)
        self._drain(0 if stopped else START_WAIT if self._supervisor is None else END_WAIT)
        if self._supervisor is not None and (stopped or not self._channel.closed):
            with suppress(ProcessLookupError):
                os.kill(self._supervisor, signal.SIGKILL)  # its members die with it
            self._drain(END_WAIT)

    def _drain(self, patience: float) -> None:
        """Read, and drop, until the supervisor's end closes."""
        deadline = time.monotonic() + patience
        while not self._channel.closed and (left := deadline - time.monotonic()) > 0:
            self._wait(left)
            for frame in self._channel.take():
                if frame.kind == STARTED:
                    self._supervisor = pickle.loads(frame.body)


def _event(name: str, body: bytes) -> dict[str, Any]:
    """What a member said. One whose code broke Python itself may say what nobody can read."""
    try:
        return dict(pickle.loads(body))
    except Exception as error:
        cause = f"sent what cannot be read ({type(error).__name__}: {error})"
        raise RunFailed(Failure(name, "", cause, "", ())) from None
