"""The index of runs: a SQLite cache beside the run folders, so that a list of a thousand runs opens no
thousand files.

It is never believed on its own. Each row carries a signature of its folder (name, size and time of the files
that matter); a row whose folder looks different is read again, one whose folder is gone is dropped. Without
an index, or with a broken or locked one, the folders are read directly and the answer is the same.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

from engine.plain_file import check_plain
from lab.store.folder import TABLES, Entry, entry_from_json, read_entry

VERSION = 4  # of the table below, and of the digests in it; another number in the file means: throw it away
_WATCHED = ("run.json", "summary.json", "live", *(f"{name}.parquet" for name in TABLES))
_PATIENCE = 2.0  # seconds to wait for another process that is writing
Rows = dict[str, tuple[str, str]]  # id: (signature, entry as JSON)


def indexed(root: Path, folders: Iterable[Path]) -> list[Entry]:
    """The entries of run folders, read through the index in `root`, which is brought up to date on the way."""
    named = {path.name: path for path in folders}
    if not named:
        return []
    path = root / "index.sqlite"
    known = _load(path)
    entries, fresh = [], {}
    for name, folder in named.items():
        state = signature(folder)
        entry = _cached(known.get(name), state)
        if entry is None:
            entry = read_entry(folder)
            fresh[name] = (state, json.dumps(asdict(entry)))
        entries.append(entry)
    gone = set(known) - set(named)
    if fresh or gone:
        _save(path, fresh, gone)
    return entries


def signature(folder: Path) -> str:
    """Another text after each change of a file that the index keeps something of."""
    return " ".join(state_of(folder / name) for name in _WATCHED)


def state_of(path: Path) -> str:
    """Another text after each change of a file; "-" for none."""
    try:
        found = path.stat()
    except OSError:
        return "-"
    # a folder's size and time change with every file inside it; that it is there is all that matters
    return "folder" if path.is_dir() else f"{found.st_mtime_ns}/{found.st_size}/{found.st_ino}"


def _cached(row: tuple[str, str] | None, signature: str) -> Entry | None:
    """The entry of a row, if it is of this very state of the folder and can be read."""
    if row is None or row[0] != signature:
        return None
    try:
        return entry_from_json(row[1])
    except ValueError:
        return None


def _load(path: Path) -> Rows:
    if not path.exists():
        return {}
    try:
        check_plain(path)  # SQLite would wait for a FIFO
        with closing(_open(path)) as base:
            return {name: (signature, entry) for name, signature, entry in _rows(base)}
    except (sqlite3.OperationalError, OSError):  # locked, a read-only folder, no file at all: do without
        return {}
    except (sqlite3.DatabaseError, ValueError, TypeError):  # not a database, or damaged
        _discard(path)
        return {}


def _rows(base: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
    yield from base.execute("SELECT id, signature, entry FROM runs")


def _save(path: Path, fresh: Rows, gone: set[str]) -> None:
    try:
        if path.exists():
            check_plain(path)
        with closing(_open(path)) as base, base:
            base.executemany("DELETE FROM runs WHERE id = ?", [(name,) for name in gone])
            rows = [(name, *row) for name, row in fresh.items()]
            base.executemany("INSERT OR REPLACE INTO runs (id, signature, entry) VALUES (?, ?, ?)", rows)
    except (sqlite3.OperationalError, OSError):
        pass
    except sqlite3.DatabaseError:
        _discard(path)


def _open(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(path, timeout=_PATIENCE)
    try:
        if base.execute("PRAGMA user_version").fetchone() != (VERSION,):
            base.execute("PRAGMA journal_mode = WAL")
            with base:
                base.execute("BEGIN IMMEDIATE")
                base.execute("DROP TABLE IF EXISTS runs")
                base.execute("CREATE TABLE runs (id TEXT PRIMARY KEY, signature TEXT, entry TEXT)")
                base.execute(f"PRAGMA user_version = {VERSION}")
        base.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:
        base.close()
        raise
    return base


def _discard(path: Path) -> None:
    """Throws the index away; the next listing makes a new one. A reader that still has it open keeps its
    copy.
    """
    for leftover in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        with suppress(OSError):
            leftover.unlink()
