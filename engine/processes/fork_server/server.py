"""`python -m engine.processes.fork_server.server`: a process with torch loaded that forks runs in milliseconds.

Importing torch takes seconds, a fork of a process that has it takes milliseconds. The client starts one fork server per
session. `multiprocessing`'s fork server will not do: it imports the user's `__main__` anew, so that a script without a
main guard would start itself again and again.

The server stays single-threaded and never touches CUDA, since neither survives a fork. It forks a supervisor for each
request, and goes on. Everything below it dies with it, and it goes when the client does.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import socket
import traceback
from collections.abc import Iterator, Sequence

from engine.processes.fork_server.hugepages import use_huge_pages
from engine.processes.supervisor import supervise

PARENT_CHECK = 0.5  # seconds
GATHER_BEFORE = 4
"""Before which run the server's memory is gathered in huge pages. That takes 0.8 s of CPU, and gives back 7 ms with
each fork, so to a run of eight ranks less than 0.1 s. Most clients, `lab run` among them, want one or two runs.
"""
_MAX_FILES = 4096  # each rank of a full mesh holds a socket per peer and group; macOS starts with 256


def prepare(preload: Sequence[str]) -> None:
    """Load what every member needs, `preload` among it, and put the process in a state worth inheriting."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the client may have had some blocked
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to act on
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors leave no zombies
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

    import numpy  # noqa: F401
    import torch
    import torch.distributed

    torch.set_num_threads(1)
    for module in preload:
        try:
            importlib.import_module(module)
        except Exception:  # the members will meet it again, and report it
            traceback.print_exc()
    gc.collect()
    gc.freeze()  # later collections in members do not touch, and so copy, the pages they share


@contextlib.contextmanager
def unless_orphaned(parent: int) -> Iterator[None]:
    """Raise SystemExit in the midst of a long import once the client is gone.

    A timer, not a thread, since a process with threads is not safe to fork."""

    def check(*_: object) -> None:
        if os.getppid() != parent:
            raise SystemExit

    signal.signal(signal.SIGALRM, check)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, PARENT_CHECK, PARENT_CHECK)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def serve(control: socket.socket, parent: int) -> None:
    """Fork a supervisor for each socket that arrives on `control`, until the client's end of it closes.

    Even a client that has gone gets one, for the requests it left: to clean up, and note what became of the run."""
    lifeline, life = os.pipe()  # only the server holds `life`, so its end tells every supervisor
    waiter = select.poll()
    waiter.register(control, select.POLLIN)
    runs = 0
    while True:
        if not waiter.poll(PARENT_CHECK * 1000):
            if os.getppid() != parent:  # gone, though some child of its own still holds its end of the socket
                return
            continue
        data, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        runs += 1
        if runs == GATHER_BEFORE:
            use_huge_pages()
        with contextlib.suppress(OSError):  # no more processes: the client sees its socket close
            if os.fork() == 0:
                control.close()
                os.close(life)
                supervise(socket.socket(fileno=sockets[0]), lifeline)
        os.close(sockets[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--control", type=int, required=True, help="inherited socket on which requests arrive")
    parser.add_argument("--parent", type=int, required=True, help="process id of the client")
    parser.add_argument("--preload", nargs="*", default=[], help="modules that members will need")
    options = parser.parse_args()
    try:
        with unless_orphaned(options.parent), contextlib.suppress(SystemExit):
            prepare(options.preload)
        serve(socket.socket(fileno=options.control), options.parent)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)  # torch has nothing to tear down here


if __name__ == "__main__":
    main()
