"""Whose turn it is: a small file for each run of the queue, in the folder `.queue` of the store.

A marker is named for its run. To rename a file is one step, so of several who try at once one takes the run: the
worker, which carries it out (`ID.busy`), or whoever cancels it before (`ID.cancelled`). `ID.stop` asks for the end of a
run under way; `.worker` says which process the worker is. What a run is and how it ended stands in its folder alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from engine.plain_file import RECORD, read_plain
from engine.whole_file import write_whole
from lab.store.folder import Owner
from lab.store.store import StoreError

FOLDER = ".queue"
Taken = Literal["busy", "cancelled"]
_KINDS = ("", ".busy", ".cancelled", ".stop")
_WORKER = ".worker"


class Markers:
    """The markers of the store in `root`. Raises `StoreError`, in one sentence, where they cannot be written."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER

    def put(self, run_id: str) -> None:
        """Puts a run at the end of the queue."""
        with self._in_words():
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path(run_id).touch(exist_ok=False)

    def waiting(self) -> list[str]:
        """The runs that wait, in the order in which they were put."""
        found = [(time, name) for time, name in self._listed() if "." not in name]
        return [name for _, name in sorted(found)]

    def taken(self, how: Taken) -> list[str]:
        """The ids of the runs that were taken in this way, first to wait first."""
        return [name.removesuffix(f".{how}") for _, name in sorted(self._listed()) if name.endswith(f".{how}")]

    def take(self, run_id: str, how: Taken) -> bool:
        """Whether the run waited and is now ours: to carry out, or never to be carried out."""
        with self._in_words():
            try:
                self._path(run_id).rename(self._path(run_id, f".{how}"))
            except FileNotFoundError:
                return False
        return True

    def remove(self, run_id: str) -> None:
        """Nothing is to be done about this run any more."""
        with self._in_words():
            for kind in _KINDS:
                self._path(run_id, kind).unlink(missing_ok=True)

    def ask_to_stop(self, run_id: str) -> None:
        """Of a run under way; the first to ask counts."""
        with self._in_words(), suppress(FileExistsError):
            self._path(run_id, ".stop").touch(exist_ok=False)

    def asked_to_stop(self, run_id: str) -> float | None:
        """When somebody asked, in seconds since 1970."""
        try:
            return self._path(run_id, ".stop").stat().st_mtime
        except OSError:
            return None

    def sign(self, run_id: str, worker: Owner) -> None:
        """Says who carries out a run that was taken."""
        with self._in_words():
            write_whole(self._path(run_id, ".busy"), json.dumps(asdict(worker)))

    def worker_of(self, run_id: str) -> Owner | None:
        """None where that is not known."""
        return _owner(self._path(run_id, ".busy"))

    def come(self, worker: Owner) -> None:
        """Says who takes the runs of this store, from before the first one on."""
        with self._in_words():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(_WORKER), json.dumps(asdict(worker)))

    def last_come(self) -> Owner | None:
        """The worker that came last, also between runs; None where that is not known."""
        return _owner(self._path(_WORKER))

    def _listed(self) -> Iterator[tuple[int, str]]:
        """(when it was put, name) of each file."""
        if not self._folder.is_dir():
            return
        for path in self._folder.iterdir():
            with suppress(OSError):  # taken meanwhile
                yield path.stat().st_mtime_ns, path.name

    def _path(self, run_id: str, kind: str = "") -> Path:
        return self._folder / f"{run_id}{kind}"

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError.writing(self._folder, error) from error


def _owner(path: Path) -> Owner | None:
    try:
        found = json.loads(read_plain(path, RECORD))
        return Owner(int(found["pid"]), float(found["started"]), str(found["host"]), found.get("since_boot"))
    except (OSError, ValueError, KeyError, TypeError):
        return None
