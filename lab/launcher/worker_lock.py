"""The one worker of a store, seen from outside: whether there is one, how it starts, and how one that hangs ends.

A worker lives as long as it holds the lock on `launches.lock`. Whoever starts one takes the lock first and
passes the locked file on, so there is never a moment in which a second could start.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

from engine import HOME
from engine.plain_file import check_plain
from lab.store.folder import Owner
from lab.store.store import StoreError

IDLE = "SHARDLAB_LAUNCH_IDLE"  # environment: after how many seconds without work a worker leaves
LOCK, LOG = "launches.lock", "launches.log"
MOST_LOG_BYTES = 1_000_000  # a longer log is begun anew
FUTILE_STARTS, PAUSE = 3, 10.0  # after so many workers that never came to work: the seconds between further ones
GONE_WITHIN = 3.0  # seconds for the killed to be gone


class WorkerLock:
    """The locked file. In it stands how often a worker was started since one last came to work."""

    def __init__(self, root: Path, fd: int) -> None:
        self._path, self._fd = root / LOCK, fd

    @classmethod
    def take(cls, root: Path) -> WorkerLock | None:
        """None if another has it. Raises `StoreError` if the folder cannot be written."""
        try:
            fd = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StoreError.writing(root / LOCK, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return cls(root, fd)

    @classmethod
    def passed_on(cls, root: Path, fd: int) -> WorkerLock:
        """In a new worker: the lock that whoever started it took. Its own children shall not keep it."""
        os.set_inheritable(fd, False)
        return cls(root, fd)

    def __enter__(self) -> WorkerLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Gives the lock up, unless it was passed on."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def is_there(self) -> bool:
        """Whether the file is still what others look at: the folder may have been removed."""
        with suppress(OSError):
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        return False

    def came_to_work(self) -> None:
        """Sets the count of `futile_starts` back to 0: this worker has begun its work."""
        os.ftruncate(self._fd, 0)

    def futile_starts(self) -> int:
        """Workers that were started one after the other and ended before they began: a byte of the file each."""
        return os.fstat(self._fd).st_size

    def may_start(self) -> bool:
        """Whether it makes sense to start a worker now: not again and again if each ends before it begins."""
        return self.futile_starts() < FUTILE_STARTS or time.time() - os.fstat(self._fd).st_mtime > PAUSE

    def start_worker(self, idle: float) -> None:
        """Starts a process that outlives this one and has the lock. Raises `StoreError` if there can be none."""
        root = self._path.parent
        package = str(HOME.resolve().parent)
        inherited = os.environ.get("PYTHONPATH")
        paths = {"PYTHONPATH": f"{package}{os.pathsep}{inherited}" if inherited else package}
        try:
            os.pwrite(self._fd, b".", self.futile_starts())
            with (root / LOG).open(_log_mode(root / LOG)) as log:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "lab.launcher.worker", str(root), "--lock", str(self._fd)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    close_fds=True,
                    pass_fds=[self._fd],
                    cwd=root,
                    env=os.environ | paths | {"SHARDLAB_RUNS": str(root), IDLE: str(idle)},
                    start_new_session=True,  # neither Ctrl-C nor the end of the terminal is meant for it
                )
        except OSError as error:
            raise StoreError(f"no process could be started that carries out launches: {error}.") from error
        threading.Thread(target=process.wait, name="shardlab-launch-worker", daemon=True).start()  # no zombie


def why_none_starts(root: Path) -> str:
    """Why a run still waits although workers were started; "" if nothing is wrong."""
    with suppress(OSError):
        if (times := (root / LOCK).stat().st_size) >= FUTILE_STARTS:
            return f"the process that carries out launches ended {times} times before it began: see {root / LOG}"
    return ""


def _log_mode(log: Path) -> Literal["ab", "wb"]:
    if log.exists():
        check_plain(log)  # a FIFO would be waited for
    return "wb" if log.exists() and log.stat().st_size > MOST_LOG_BYTES else "ab"


def end_worker(worker: Owner) -> None:
    """Kills a worker that does not answer, and all that it started. One that is gone, or elsewhere, is left alone."""
    import psutil

    if worker.host != socket.gethostname() or worker.is_gone():
        return
    with suppress(psutil.Error, ProcessLookupError):
        process = psutil.Process(worker.pid)
        family = process.children(recursive=True)  # its ranks end by themselves, unless they hang too
        if os.getpgid(worker.pid) == worker.pid:
            os.killpg(worker.pid, signal.SIGKILL)
        else:  # started by hand
            process.kill()
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs([process, *family], timeout=GONE_WITHIN)
