"""The nursery of this client process: started when first needed, shared by its threads, never by its forks."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator

from engine.home import HOME

DYING_WAIT = 0.2  # seconds between the end of a process's sockets and its own

RANK_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # one thread a rank: the cores are shared by all ranks
    "MKL_NUM_THREADS": "1",
    # Freed tensors go back to the system at once, so that memory figures tell the truth.
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "1048576",
    "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",  # macOS: members are forked, and do not exec
    # Arrow's allocator would start a thread, and a process with threads is not safe to fork.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # `torch.cuda.is_available()` answers without starting CUDA, which no fork survives.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


class NotTaken(Exception):
    """The nursery ended, or could not fork, before a supervisor took the request."""


class Nursery:
    """The nursery process and the socket that requests go through. It ends when that socket closes."""

    def __init__(self) -> None:
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the nursery)
        self.control, theirs = socket.socketpair()
        root = str(HOME.resolve().parent)
        inherited = os.environ.get("PYTHONPATH")
        options = ["--control", str(theirs.fileno()), "--parent", str(os.getpid())]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "engine.processes.fork_server.server", *options],
                stdin=subprocess.DEVNULL,
                stdout=self._words,
                stderr=self._words,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C goes to the client alone
                env=os.environ | RANK_ENVIRONMENT | {"PYTHONPATH": f"{root}{os.pathsep}{inherited or root}"},
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def open_run(self) -> socket.socket:
        """A socket to a new supervisor. One may write to it at once, even while torch is being imported."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"R"], [theirs.fileno()])
        return ours

    def last_words(self) -> str:
        size = os.fstat(self._words.fileno()).st_size
        return os.pread(self._words.fileno(), size, 0).decode("utf-8", errors="replace").strip()

    def close(self) -> None:
        self.control.close()
        self.process.kill()  # it may be importing torch, and not looking at the socket
        self.process.wait()


class _State:
    """What this client process holds. A forked child of it must not: see `_forget`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.nursery: Nursery | None = None
        self.runs: set[socket.socket] = set()


_state = _State()


def _forget() -> None:
    """In a forked child of the client: let go of the parent's sockets, lest they hide the parent's death."""
    global _state
    parents, _state = _state, _State()
    for sock in parents.runs:
        sock.close()
    if parents.nursery is not None:
        parents.nursery.control.close()
        parents.nursery.process.returncode = 0  # not our child: nothing to wait for


def _ready() -> Nursery:
    """The running nursery, started anew if need be. Hold the lock."""
    if _state.nursery is not None and not _state.nursery.alive:
        _state.nursery.control.close()
        _state.nursery = None
    if _state.nursery is None:
        _state.nursery = Nursery()
    return _state.nursery


def warm() -> None:
    """Start the nursery in the background, so that the first run need not wait for torch."""
    with _state.lock:
        _ready()


def shutdown() -> None:
    """End the nursery and every run of this process. Called at exit; a later `launch` starts a new one."""
    with _state.lock:
        nursery, _state.nursery = _state.nursery, None
        for sock in _state.runs:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # its supervisor sees the client go
    if nursery is not None:
        nursery.close()


os.register_at_fork(
    before=lambda: _state.lock.acquire(),  # no fork while a socket exists that `_state` does not know yet
    after_in_parent=lambda: _state.lock.release(),
    after_in_child=_forget,
)
atexit.register(shutdown)


@contextlib.contextmanager
def open_run() -> Iterator[tuple[socket.socket, Nursery]]:
    """A socket to a new supervisor, for as long as the context lasts."""
    state = _state
    with state.lock:
        nursery = _ready()
        try:
            sock = nursery.open_run()
        except OSError:
            _discard(state, nursery)
            raise NotTaken(nursery.last_words()) from None
        state.runs.add(sock)
    try:
        yield sock, nursery
    except NotTaken:
        with state.lock:
            _discard(state, nursery)
        raise
    finally:
        with state.lock:
            state.runs.discard(sock)
        sock.close()


def _discard(state: _State, nursery: Nursery) -> None:
    """Do not use this nursery again, unless it lives after all: other runs may depend on it. Hold the lock."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        nursery.process.wait(DYING_WAIT)
        nursery.control.close()
        if state.nursery is nursery:
            state.nursery = None
