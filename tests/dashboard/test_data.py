"""What pages keep of a run, and when they read it anew."""

from __future__ import annotations

from pathlib import Path

import engine
from dashboard.data import cached_runs
from engine.job.job import Job
from engine.recording.live_files import live_path
from lab.store.clusters import cluster_folder
from lab.store.notes import write_notes
from lab.store.store import Store


def test_a_run_that_goes_on_has_another_key_after_each_step(empty: Store) -> None:
    info = empty.create(Job(), ())
    before = cached_runs.key_of(info.id)
    assert cached_runs.key_of(info.id) == before
    live_path(empty.folder(info.id), 0).write_text("a step\n")
    assert cached_runs.key_of(info.id) != before


def test_that_a_run_was_killed_is_seen_though_its_folder_stayed_as_it_was(empty: Store) -> None:
    info = empty.create(Job(), ())
    key = cached_runs.key_of(info.id)
    with empty.executing(info.id):
        assert cached_runs.run_of(key).status == "running"
    assert cached_runs.key_of(info.id) == key and cached_runs.run_of(key).status == "killed"


def test_a_run_that_has_ended_is_read_once(store: Store) -> None:
    for entry in store.entries():
        key = cached_runs.key_of(entry.info.id)
        assert cached_runs.run_of(key) is cached_runs.run_of(key)


def test_on_a_cluster_that_has_changed_a_run_is_replayed_anew(store: Store) -> None:
    run_id = next(entry.info.id for entry in store.entries() if entry.info.status == "finished")
    mine = cluster_folder(store) / "mine.toml"
    mine.parent.mkdir(exist_ok=True)
    text = (Path(engine.__file__).parent / "cluster" / "presets" / "toy-2x4.toml").read_text(encoding="utf-8")

    def step_seconds() -> float:
        return float(cached_runs.shown_run(cached_runs.key_of(run_id), "mine").summary["step_seconds"])

    mine.write_text(text, encoding="utf-8")
    before = step_seconds()
    mine.write_text(text.replace("fp32 = 6.005e+08", "fp32 = 6.005e+07"), encoding="utf-8")
    assert step_seconds() > 2 * before, "a tenth of the FLOP/s"


def test_the_name_that_somebody_gave_a_run_hides_no_fault(empty: Store) -> None:
    info = empty.create(Job.from_options(dp=2, bug="same-data"), ())
    write_notes(empty.folder(info.id), name="mine")
    assert "mine · with the fault 'same-data'" in cached_runs.called(info)
