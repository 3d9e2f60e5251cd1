"""What pages keep of a run, and when they read it anew."""

from __future__ import annotations

from dashboard import data
from engine.job import Job
from engine.live_files import live_path
from lab.store import Store


def test_a_run_that_goes_on_has_another_key_after_each_step(empty: Store) -> None:
    info = empty.create(Job(), ())
    before = data.key_of(info.id)
    assert data.key_of(info.id) == before
    live_path(empty.folder(info.id), 0).write_text("a step\n")
    assert data.key_of(info.id) != before


def test_that_a_run_was_killed_is_seen_though_its_folder_stayed_as_it_was(empty: Store) -> None:
    info = empty.create(Job(), ())
    key = data.key_of(info.id)
    with empty.executing(info.id):
        assert data.run_of(key).status == "running"
    assert data.key_of(info.id) == key and data.run_of(key).status == "killed"


def test_a_run_that_has_ended_is_read_once(store: Store) -> None:
    for entry in store.entries():
        key = data.key_of(entry.info.id)
        assert data.run_of(key) is data.run_of(key)
