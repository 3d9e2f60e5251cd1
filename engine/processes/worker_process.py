"""What happens inside one forked member: settle in, call the target, report, and end without ceremony."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from engine.processes.channel import DONE, EVENT, RAISED, encode
from engine.processes.root_cause import Raised, SystemTrouble, is_communication_error
from engine.processes.status.board import StatusSlot

HEARTBEAT = 0.25  # seconds between two notes of the CPU time used
DUMP_SIGNAL = signal.SIGUSR1  # makes a member print its Python stack, even from inside a C++ wait
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class MemberContext:
    """What a target function receives.

    rendezvous: a fresh path for a torch `FileStore`, the same for all members of the run.
    emit: hands a picklable dict to `on_event` in the client; the order of one member's events is kept.
    """

    index: int
    size: int
    payload: dict[str, Any]
    status: StatusSlot
    emit: Callable[[dict[str, Any]], None]
    rendezvous: str


@dataclass(frozen=True)
class Task:
    """What the supervisor tells a member it forks. `payloads`, of all members, are still pickled: only members look."""

    index: int
    size: int
    target: str
    payloads: bytes
    rendezvous: str


def become_member(
    task: Task, slot: StatusSlot, sock: socket.socket, output: int, lifeline: int, parent: int
) -> NoReturn:
    """Turn this forked process into a member. `lifeline` is a pipe that ends when the supervisor `parent` does."""
    _die_with_parent(parent)
    os.setpgid(0, 0)  # so that whatever the target starts is killed along with it
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    faulthandler.enable()  # an abort in C++ prints the Python stack it came from
    faulthandler.register(DUMP_SIGNAL, all_threads=False)
    threading.Thread(target=_heartbeat, args=(slot, lifeline), daemon=True).start()
    status = _run(task, slot, sock)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # no atexit hooks, no teardown of torch: both can wait for peers that are gone


def _die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process when its parent dies, however it dies; elsewhere the lifeline does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def _heartbeat(slot: StatusSlot, lifeline: int) -> None:
    """Note the CPU time used; end the process when the lifeline does."""
    waiter = select.poll()
    waiter.register(lifeline, select.POLLIN)
    while not waiter.poll(HEARTBEAT * 1000):
        slot.cpu(time.process_time())
    os._exit(1)


def _run(task: Task, slot: StatusSlot, sock: socket.socket) -> int:
    """Call the target; the exit status. An exception is reported with its whole traceback."""
    lock = threading.Lock()

    def send(kind: bytes, body: bytes = b"") -> None:
        with lock:
            sock.sendall(encode(kind, task.index, body))

    def emit(event: dict[str, Any]) -> None:
        send(EVENT, pickle.dumps(event))

    try:
        payload = pickle.loads(task.payloads)[task.index]
        find_target(task.target)(MemberContext(task.index, task.size, payload, slot, emit, task.rendezvous))
    except SystemExit as end:
        if end.code not in (None, 0):
            print(f"SystemExit: {end.code}", file=sys.stderr)
            return end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        with contextlib.suppress(OSError):
            send(RAISED, pickle.dumps(_describe(error)))
        return 1
    slot.done()
    with contextlib.suppress(OSError):
        send(DONE)
    return 0


def find_target(target: str) -> Callable[[MemberContext], object]:
    module, _, function = target.partition(":")
    found: Callable[[MemberContext], object] = getattr(importlib.import_module(module), function)
    return found


def _describe(error: BaseException) -> Raised:
    frames = error.__traceback__.tb_next if error.__traceback__ else None  # without the frame of `_run`
    headline = "".join(traceback.format_exception_only(error)).strip()
    text = "".join(traceback.format_exception(type(error), error, frames))
    system = SystemTrouble(error.errno, os.fsdecode(error.filename or "")) if isinstance(error, OSError) else None
    return Raised(headline, text, is_communication_error(error), system)
