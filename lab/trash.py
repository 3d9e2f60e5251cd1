"""Runs that were deleted, until they are deleted for good: a folder `.deleted` in the store, out of every listing."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from lab.store import RunNotFound, Store, StoreError

KEPT_DAYS = 7.0


def delete(store: Store, run_id: str) -> None:
    """Moves a run out of the store; `restore` brings it back. Those deleted `KEPT_DAYS` ago go for good.

    Raises `RunNotFound`, `ValueError` for a run that goes on, `StoreError` if the store cannot be written.
    """
    entry = store.find(run_id)
    if entry.info.status == "running":
        raise ValueError(f"run {entry.info.id} goes on: cancel it before you delete it.")
    empty(store)
    _move(store.folder(entry.info.id), _folder(store) / entry.info.id)


def restore(store: Store, run_id: str) -> None:
    """Brings a deleted run back. Raises `RunNotFound` if it is not among the deleted ones, `StoreError`."""
    if run_id not in deleted(store):
        raise RunNotFound(f"run {run_id} is not among the deleted ones.")
    _move(_folder(store) / run_id, store.folder(run_id))


def deleted(store: Store) -> list[str]:
    """The ids of the runs that `restore` can bring back, newest first."""
    return [path.name for path in reversed(Store(_folder(store)).folders())]


def empty(store: Store, days: float = KEPT_DAYS) -> None:
    """Deletes for good what was deleted more than `days` ago."""
    for path in Store(_folder(store)).folders():
        if time.time() - path.stat().st_ctime > days * 86400:  # the time it was moved
            shutil.rmtree(path, ignore_errors=True)


def _folder(store: Store) -> Path:
    return store.root / ".deleted"


def _move(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(exist_ok=True)
        source.rename(target)
    except OSError as error:
        raise StoreError.writing(target, error) from error
