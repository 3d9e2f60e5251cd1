"""The fork server of this client process: started when first needed, shared by its threads, never by its forks."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence

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
    # The members of a run are on one machine. Left to itself, gloo binds to whatever the name of the machine resolves
    # to: to nothing without a network, to an address of a VPN or a Wi-Fi that may vanish, or to what a variable says
    # that was set for some cluster. The loopback interface is there on every machine, and stays.
    "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
    "GLOO_DEVICE_TRANSPORT": "TCP" if sys.platform == "linux" else "UV",
}


class NotTaken(Exception):
    """The fork server ended, or could not fork, before a supervisor took the request."""


class ForkServer:
    """The process and the socket that requests go through. It ends when that socket closes."""

    def __init__(self, preload: Sequence[str]) -> None:
        """preload: modules that those it forks find loaded."""
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the server)
        self.control, theirs = socket.socketpair()
        root = str(HOME.resolve().parent)
        inherited = os.environ.get("PYTHONPATH")
        options = ["--control", str(theirs.fileno()), "--parent", str(os.getpid()), "--preload", *preload]
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
        self.server: ForkServer | None = None
        self.runs: set[socket.socket] = set()


_state = _State()


def _forget() -> None:
    """In a forked child of the client: let go of the parent's sockets, lest they hide the parent's death."""
    global _state
    parents, _state = _state, _State()
    for sock in parents.runs:
        sock.close()
    if parents.server is not None:
        parents.server.control.close()
        parents.server.process.returncode = 0  # not our child: nothing to wait for


def _ready(preload: Sequence[str]) -> ForkServer:
    """The running fork server, started anew, with `preload`, if need be. Hold the lock."""
    if _state.server is not None and not _state.server.alive:
        _state.server.control.close()
        _state.server = None
    if _state.server is None:
        _state.server = ForkServer(preload)
    return _state.server


def warm(preload: Sequence[str] = ()) -> None:
    """Start the fork server in the background, so that the first run need not wait for torch.

    preload: modules that its processes will need besides.
    """
    with _state.lock:
        _ready(preload)


def shutdown() -> None:
    """End the fork server and every run of this process. Called at exit; a later `launch` starts a new one."""
    with _state.lock:
        server, _state.server = _state.server, None
        for sock in _state.runs:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # its supervisor sees the client go
    if server is not None:
        server.close()


os.register_at_fork(
    before=lambda: _state.lock.acquire(),  # no fork while a socket exists that `_state` does not know yet
    after_in_parent=lambda: _state.lock.release(),
    after_in_child=_forget,
)
atexit.register(shutdown)


@contextlib.contextmanager
def open_run(preload: Sequence[str] = ()) -> Iterator[tuple[socket.socket, ForkServer]]:
    """A socket to a new supervisor, for as long as the context lasts. preload: of a server that has to be started."""
    state = _state
    with state.lock:
        server = _ready(preload)
        try:
            sock = server.open_run()
        except OSError:
            _discard(state, server)
            raise NotTaken(server.last_words()) from None
        state.runs.add(sock)
    try:
        yield sock, server
    except NotTaken:
        with state.lock:
            _discard(state, server)
        raise
    finally:
        with state.lock:
            state.runs.discard(sock)
        sock.close()


def give_up(server: ForkServer) -> None:
    """End a server that does not answer, so that the next run starts a new one; not while other runs live by it."""
    with _state.lock:
        if len(_state.runs) > 1:
            return
        server.close()
        if _state.server is server:
            _state.server = None


def _discard(state: _State, server: ForkServer) -> None:
    """Do not use this server again, unless it lives after all: other runs may depend on it. Hold the lock."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.process.wait(DYING_WAIT)
        server.control.close()
        if state.server is server:
            state.server = None
