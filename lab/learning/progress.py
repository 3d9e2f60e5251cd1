"""What one learner has done so far: exercises passed and predictions made, in one file beside the runs.

The file is `learner.json` in the run store. Two notebooks may write it at once: each change reads the newest file under
a lock, merges and replaces it in one step.
"""

from __future__ import annotations

import fcntl
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from engine.plain_file import RECORD, read_text
from engine.whole_file import write_whole
from lab.store.store import StoreError, default_root

Kind = Literal["exercise", "prediction"]
Value = dict[str, Any]
_Book = dict[str, dict[str, Value]]

KINDS: tuple[Kind, ...] = get_args(Kind)


class Learner:
    """The progress kept in `path`, by default `learner.json` in the run store (SHARDLAB_RUNS or `./runs`)."""

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = Path(path).absolute() if path is not None else default_root() / "learner.json"

    def record(self, kind: Kind, key: str, value: Value) -> None:
        """Keeps `value`, which must be JSON, in place of what was there under `key`.

        Raises `StoreError` if the file cannot be written, `TypeError` or `ValueError` for a value that is not JSON.
        """
        _check(kind)
        text = json.dumps(value, allow_nan=False)  # before anything is touched
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                book = self._read()
                book[kind][key] = json.loads(text)
                write_whole(self.path, json.dumps(book, indent=2))
        except OSError as error:
            raise StoreError.writing(self.path, error) from error

    def get(self, kind: Kind, key: str) -> Value | None:
        """What was recorded under `key`, None if nothing was."""
        return self.all(kind).get(key)

    def all(self, kind: Kind) -> dict[str, Value]:
        """Everything recorded of this kind, by key, in the order in which keys first came. What cannot be read is
        told in a warning: nobody shall be kept from learning by it.
        """
        _check(kind)
        try:
            return self._shared()[kind] if self.path.exists() else {}
        except OSError as error:
            words = f"{self.path} cannot be read ({error.strerror}), so your progress so far cannot be shown."
            warnings.warn(words, RuntimeWarning, stacklevel=3)
            return {}

    def _shared(self) -> _Book:
        try:
            with self._locked():
                return self._read()
        except OSError:  # in a folder that can only be read nobody else writes
            return self._read()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the file, among all processes and threads; the lock goes when its holder does."""
        with self.path.with_name(f".{self.path.name}.lock").open("a+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> _Book:
        """The file's content; a damaged one is put aside under another name, with a warning, and starts anew."""
        try:
            found = _entries(json.loads(read_text(self.path, RECORD)))
            return {kind: _entries(found.get(kind, {})) for kind in KINDS}
        except FileNotFoundError:
            pass
        except (ValueError, RecursionError):
            self._put_aside()
        return {kind: {} for kind in KINDS}

    def _put_aside(self) -> None:
        aside = self._free_name()
        try:
            self.path.replace(aside)
        except OSError:  # a folder that can only be read
            words = f"{self.path} is damaged, so your progress so far cannot be shown."
        else:
            words = f"{self.path} was damaged and is now {aside.name}: your progress starts anew."
        warnings.warn(words, RuntimeWarning, stacklevel=5)

    def _free_name(self) -> Path:
        names = (self.path.with_name(f"{self.path.stem}-damaged-{number}.json") for number in range(1, 10**6))
        return next(name for name in names if not name.exists())


def _check(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"there is no kind of progress called {kind!r}: use {' or '.join(KINDS)}.")


def _entries(found: Any) -> dict[str, Value]:
    if not isinstance(found, dict) or not all(isinstance(value, dict) for value in found.values()):
        raise ValueError("entries are JSON objects by key")
    return found
