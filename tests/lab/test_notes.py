"""Names, stars and tags: kept apart from what was measured, harmless whatever somebody writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lab.store.notes import LONGEST_NAME, Notes, read_notes, write_notes
from lab.store.store import StoreError


def test_what_is_written_is_read_and_the_rest_stays(tmp_path: Path) -> None:
    write_notes(tmp_path, name="baseline")
    write_notes(tmp_path, star=True)
    assert write_notes(tmp_path, tags=["slow", "for the talk", "slow"]) == read_notes(tmp_path)
    assert read_notes(tmp_path) == Notes(name="baseline", star=True, tags=("slow", "for the talk"))


def test_a_run_without_notes_or_with_damaged_ones_has_none(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == Notes()
    for text in ("", "{", '{"name": 3}', '{"tags": "x"}', "[]"):
        (tmp_path / "notes.json").write_text(text)
        assert read_notes(tmp_path) == Notes()


def test_a_name_is_one_line_of_what_can_be_seen(tmp_path: Path) -> None:
    assert write_notes(tmp_path, name="  two\nlines\x00 and \u202eturned ").name == "two lines and turned"
    assert write_notes(tmp_path, name="<b>bold</b> & 'quoted'").name == "<b>bold</b> & 'quoted'"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "x" * 61}, "at most 60 letters"),
        ({"tags": ["x" * 25]}, "at most 24"),
        ({"tags": list("abcdefghi")}, "8 tags"),
    ],
)
def test_too_much_is_refused_and_changes_nothing(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    write_notes(tmp_path, name="kept")
    with pytest.raises(ValueError, match=words):
        write_notes(tmp_path, **changes)
    assert read_notes(tmp_path) == Notes(name="kept")


def test_a_file_from_elsewhere_cannot_be_longer_than_what_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text(json.dumps({"name": "x" * 1000, "star": False, "tags": list("abcdefghijk")}))
    found = read_notes(tmp_path)
    assert len(found.name) == LONGEST_NAME and len(found.tags) == 8


def test_a_folder_that_is_gone_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        write_notes(tmp_path / "gone", star=True)


def test_a_file_that_nobody_wrote_here_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "notes.json")  # whoever opens it waits for a writer
    assert read_notes(tmp_path) == Notes()
    (tmp_path / "notes.json").unlink()
    (tmp_path / "notes.json").write_text(json.dumps({"name": "x" * 10**6}))
    assert read_notes(tmp_path) == Notes()
