"""The file of launches: one SQLite database in the store's root, opened anew for each statement.

Whatever is wrong with it becomes one sentence. A file that is damaged is put aside, never repaired: the runs
themselves are in their own folders.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from lab.store.store import StoreError

FILE = "launches.sqlite"
VERSION = 1  # of the table below; another number in the file means that this program cannot read it
_PATIENCE = 5.0  # seconds to wait for another process that is writing
_LEAST_SPACE = 100_000  # bytes of disk that one change may need beside the file
_TABLE = """
CREATE TABLE launches (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, job TEXT NOT NULL, parity INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued', run_id TEXT, steps_done INTEGER NOT NULL DEFAULT 0,
    message TEXT NOT NULL DEFAULT '', created TEXT NOT NULL, ended TEXT, cancel_asked REAL,
    pid INTEGER, started REAL, host TEXT
)"""


class LaunchFile:
    """Every method raises `StoreError`, in one sentence, if the file cannot be used."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE

    def do(self, statement: str, *values: Any) -> list[Any]:
        """Carries out one statement; its rows, none without a file."""
        if not self.path.exists():
            return []
        try:
            with self._locked(fcntl.LOCK_SH):
                if not self.path.exists():
                    return []
                with closing(_connect(self.path)) as base:
                    return base.execute(statement, values).fetchall()
        except OSError as error:
            raise StoreError.writing(self.path, error) from error
        except _Damaged as error:
            raise self._put_aside() from error
        except sqlite3.Error as error:
            raise self._trouble(error) from error

    def make(self) -> None:
        """Makes the file, unless it is there."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked(fcntl.LOCK_EX):
                if not self.path.exists():
                    _create(self.path)
        except OSError as error:
            raise StoreError.writing(self.path, error) from error
        except sqlite3.Error as error:
            raise self._trouble(error) from error

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Alone (`LOCK_EX`) to make the file or put it aside, and never while others have it open (`LOCK_SH`): SQLite
        would mix up the old and the new one's journal.
        """
        with self.path.with_name(f".{FILE}.lock").open("a") as lock:
            fcntl.flock(lock, how)
            yield

    def _trouble(self, error: sqlite3.Error) -> StoreError:
        if _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return self._put_aside()
        if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreError(f"{self.path} is locked by another program: try again when that is done.")
        if shutil.disk_usage(self.path.parent).free < _LEAST_SPACE:  # which SQLite tells in many ways
            return StoreError.writing(self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return StoreError(f"{self.path} cannot be used: {error}; set SHARDLAB_RUNS to another folder.")

    def _put_aside(self) -> StoreError:
        """Renames a damaged file, unless somebody else has done so since; the words for it."""
        try:
            with self._locked(fcntl.LOCK_EX):
                if not self.path.exists() or _sound(self.path):
                    return StoreError(f"{self.path} was damaged and has been put aside: try again.")
                names = (self.path.with_name(f"launches-damaged-{number}.sqlite") for number in range(1, 10**6))
                aside = next(name for name in names if not name.exists())
                for tail in ("-wal", "-shm", ""):
                    with suppress(FileNotFoundError):
                        self.path.with_name(FILE + tail).rename(aside.with_name(aside.name + tail))
        except OSError as error:
            return StoreError.writing(self.path, error)
        return StoreError(f"{self.path} was damaged and is now {aside.name}: the queue starts anew, all runs are kept.")


class _Damaged(Exception):
    """The file is a database, but not this one."""


def _connect(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE, isolation_level=None)
    try:
        base.text_factory = lambda text: text.decode("utf-8", errors="replace")
        if base.execute("PRAGMA user_version").fetchone() != (VERSION,):
            raise _Damaged(path)
        base.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        base.close()
        raise
    return base


def _create(path: Path) -> None:
    draft = path.with_name(f".{FILE}.{os.getpid()}")
    try:
        with closing(sqlite3.connect(draft, isolation_level=None)) as base:
            base.execute("PRAGMA journal_mode = WAL")  # kept in the file
            base.execute(_TABLE)
            base.execute(f"PRAGMA user_version = {VERSION}")
        draft.rename(path)
    finally:
        for tail in ("", "-wal", "-shm"):
            draft.with_name(draft.name + tail).unlink(missing_ok=True)


def _sound(path: Path) -> bool:
    try:
        with closing(_connect(path)) as base:
            base.execute("SELECT id FROM launches LIMIT 1").fetchall()
            return bool(base.execute("PRAGMA quick_check").fetchone() == ("ok",))
    except (_Damaged, sqlite3.DatabaseError) as error:
        return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: Exception) -> int | None:
    """SQLite's primary result code."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF
