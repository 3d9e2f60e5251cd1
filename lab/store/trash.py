"""Runs that were deleted, until they are deleted for good: a folder `.deleted` in the store, out of every listing."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from lab.store.store import RunNotFound, Store, StoreError

KEPT_DAYS = 7.0


def delete(store: Store, run_id: str) -> None:
    """Moves a run out of the store; `restore` brings it back. Those deleted `KEPT_DAYS` ago go for good.

    Of runs with the same id only the last one is kept.

    Raises `RunNotFound`, `ValueError` for a run that goes on, `StoreError` if the store cannot be written.
    """
    entry = store.find(run_id)
    if entry.info.status in ("queued", "running"):
        goes_on = "waits for its turn" if entry.info.status == "queued" else "goes on"
        raise ValueError(f"run {entry.info.id} {goes_on}: cancel it before you delete it.")
    empty(store)
    _forget(_folder(store) / entry.info.id)
    _move(store.folder(entry.info.id), _folder(store) / entry.info.id)


def restore(store: Store, run_id: str) -> None:
    """Brings a deleted run back.

    Raises `RunNotFound` if it is not among the deleted ones, `ValueError` if another has its id now, `StoreError`.
    """
    if run_id not in deleted(store):
        raise RunNotFound(f"run {run_id} is not among the deleted ones.")
    if os.path.lexists(store.folder(run_id)):
        raise ValueError(f"there is a run {run_id} again: delete or rename it, and the one before can be restored.")
    _move(_folder(store) / run_id, store.folder(run_id))


def deleted(store: Store) -> list[str]:
    """The ids of the runs that `restore` can bring back, newest first."""
    return [path.name for path in reversed(Store(_folder(store)).folders())]


def empty(store: Store, days: float = KEPT_DAYS) -> None:
    """Deletes for good what was deleted more than `days` ago."""
    for path in Store(_folder(store)).folders():
        with suppress(OSError):  # another process does the same
            if time.time() - path.lstat().st_ctime > days * 86400:  # the time it was moved
                _forget(path)


def _forget(path: Path) -> None:
    """Deletes a run for good; of a link only the link."""
    if path.is_symlink():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _folder(store: Store) -> Path:
    return store.root / ".deleted"


def _move(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
    except OSError as error:
        raise StoreError.writing(target, error) from error
