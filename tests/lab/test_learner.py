"""A learner's progress: kept, shared by two kernels, and never a reason to crash."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from lab.learning.progress import Learner
from lab.store.store import Store, StoreError


def test_what_is_recorded_is_there_for_the_next_kernel(tmp_path: Path) -> None:
    Learner(tmp_path / "l.json").record("exercise", "ring", {"passed": True, "score": 1.5})
    again = Learner(tmp_path / "l.json")
    assert again.get("exercise", "ring") == {"passed": True, "score": 1.5}
    assert again.all("exercise") == {"ring": {"passed": True, "score": 1.5}}


def test_nothing_recorded_is_nothing_found_and_leaves_no_file(tmp_path: Path) -> None:
    learner = Learner(tmp_path / "l.json")
    assert learner.get("prediction", "bubble") is None
    assert learner.all("exercise") == {}
    assert list(tmp_path.iterdir()) == []


def test_a_later_value_replaces_the_earlier_and_kinds_are_kept_apart(tmp_path: Path) -> None:
    learner = Learner(tmp_path / "l.json")
    learner.record("exercise", "a", {"n": 1, "old": True})
    learner.record("prediction", "a", {"n": 2})
    learner.record("exercise", "a", {"n": 3})
    assert learner.get("exercise", "a") == {"n": 3}
    assert learner.get("prediction", "a") == {"n": 2}


def test_the_file_lies_in_the_run_store_and_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))
    learner = Learner()
    learner.record("exercise", "a", {})
    assert learner.path == Store().root / "learner.json" and learner.path.exists()
    assert Store().entries() == []


def _write_many(path: Path, name: str) -> None:
    for number in range(40):
        Learner(path).record("exercise", f"{name}{number}", {"number": number})


def test_two_kernels_writing_at_once_lose_nothing(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=_write_many, args=(tmp_path / "l.json", name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert Learner(tmp_path / "l.json").all("exercise").keys() == {f"{name}{n}" for name in "ab" for n in range(40)}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"exercise": []}', '{"exercise": {"a": 1}}', "\x00\x00", "[" * 100_000]
)
def test_a_damaged_file_is_set_aside_and_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "l.json"
    path.write_text(text)
    with pytest.warns(RuntimeWarning, match=r"l\.json was damaged and is now l-damaged-1\.json"):
        assert Learner(path).all("exercise") == {}
    assert (tmp_path / "l-damaged-1.json").read_text() == text
    Learner(path).record("exercise", "a", {"n": 1})
    assert Learner(path).get("exercise", "a") == {"n": 1}


def test_bytes_that_are_no_text_are_set_aside_too_and_no_earlier_copy_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "l.json"
    for number in (1, 2):
        path.write_bytes(b"\xff\xfe\xfa")
        with pytest.warns(RuntimeWarning, match=f"l-damaged-{number}"):
            Learner(path).record("exercise", "a", {})
    assert len(list(tmp_path.glob("l-damaged-*.json"))) == 2


def test_a_value_that_is_not_json_changes_nothing(tmp_path: Path) -> None:
    learner = Learner(tmp_path / "l.json")
    learner.record("exercise", "a", {"n": 1})
    for value, error in (({"x": object()}, TypeError), ({"x": float("nan")}, ValueError)):
        with pytest.raises(error):
            learner.record("exercise", "a", value)
    assert json.loads((tmp_path / "l.json").read_text())["exercise"] == {"a": {"n": 1}}


def test_a_kind_that_does_not_exist_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no kind of progress called 'quiz': use exercise or prediction"):
        Learner(tmp_path / "l.json").record("quiz", "a", {})


def test_a_place_that_cannot_be_written_is_said_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="set SHARDLAB_RUNS to another folder"):
        Learner(tmp_path / "file" / "l.json").record("exercise", "a", {})


def test_what_cannot_be_read_is_told_and_nobody_is_kept_from_learning(tmp_path: Path) -> None:
    (tmp_path / "l.json").mkdir()
    with pytest.warns(RuntimeWarning, match=r"l\.json cannot be read .*, so your progress so far cannot be shown"):
        assert Learner(tmp_path / "l.json").all("exercise") == {}
