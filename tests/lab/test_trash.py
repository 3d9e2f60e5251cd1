"""Deleting a run and taking it back."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.job.job import Job
from lab.store.folder import RunInfo
from lab.store.store import Store
from lab.store.stored_run import RunNotFound
from lab.store.trash import KEPT_DAYS, delete, deleted, empty, restore


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def ended(store: Store) -> RunInfo:
    info = replace(store.create(Job(), ("test",)), status="stopped", message="by the user")
    store.write(info)
    return info


def test_a_deleted_run_is_in_no_list_and_comes_back_whole(store: Store) -> None:
    info = ended(store)
    delete(store, info.id)
    assert store.entries() == [] and deleted(store) == [info.id]
    restore(store, info.id)
    assert [entry.info for entry in store.entries()] == [info] and deleted(store) == []


def test_a_run_that_goes_on_cannot_be_deleted(store: Store) -> None:
    info = store.create(Job(), ())
    with store.executing(info.id), pytest.raises(ValueError, match="goes on: cancel it"):
        delete(store, info.id)
    assert store.folder(info.id).exists()


@pytest.mark.parametrize("name", ["../outside", "..", "/etc", ".deleted", "20260101-000000-no-such-run", ""])
def test_only_runs_of_the_store_can_be_deleted_or_brought_back(store: Store, tmp_path: Path, name: str) -> None:
    ended(store)
    (tmp_path / "outside").mkdir()
    for do in (delete, restore):
        with pytest.raises(RunNotFound):
            do(store, name)
    assert (tmp_path / "outside").exists() and len(store.entries()) == 1


def test_what_was_deleted_long_ago_goes_for_good(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new, next_week = ended(store), ended(store), time.time() + (KEPT_DAYS + 1) * 86400
    delete(store, old.id)
    empty(store)
    assert deleted(store) == [old.id]
    monkeypatch.setattr(time, "time", lambda: next_week)
    delete(store, new.id)
    assert deleted(store) == [new.id] and not os.path.lexists(store.root / ".deleted" / old.id)


def again(store: Store, info: RunInfo, message: str) -> None:
    """A folder with the id of a run that was deleted: a copy, or one brought back by hand."""
    store.folder(info.id).mkdir()
    store.write(replace(info, message=message))


def test_a_run_whose_id_is_taken_again_stays_deleted_and_the_other_is_not_touched(store: Store) -> None:
    info = ended(store)
    delete(store, info.id)
    again(store, info, "the other")
    with pytest.raises(ValueError, match=r"there is a run .* again"):
        restore(store, info.id)
    assert [entry.info.message for entry in store.entries()] == ["the other"] and deleted(store) == [info.id]


def test_of_two_deleted_runs_with_one_id_the_last_comes_back(store: Store) -> None:
    info = ended(store)
    delete(store, info.id)
    again(store, info, "the other")
    delete(store, info.id)
    restore(store, info.id)
    assert [entry.info.message for entry in store.entries()] == ["the other"]


def test_of_a_run_that_is_a_link_only_the_link_goes(store: Store, tmp_path: Path) -> None:
    info = ended(store)
    store.folder(info.id).rename(tmp_path / "elsewhere")
    store.folder(info.id).symlink_to(tmp_path / "elsewhere")
    delete(store, info.id)
    empty(store, days=-1)
    assert not deleted(store) and (tmp_path / "elsewhere" / "run.json").exists()
