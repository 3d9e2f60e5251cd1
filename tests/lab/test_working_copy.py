"""What a learner changed in the copy of a notebook is never lost, and what was not changed stays up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.job.errors import UserError
from lab.learning.notebook_copies import Copied, update


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    folder = tmp_path / "originals"
    folder.mkdir()
    for name in ("00_a", "01_b"):
        (folder / f"{name}.ipynb").write_text(f"{name}, first edition", encoding="utf-8")
        (folder / f"{name}.py").write_text("its source", encoding="utf-8")
    return folder


@pytest.fixture
def mine(tmp_path: Path, originals: Path) -> Path:
    folder = tmp_path / "work" / "mine"
    assert update(folder, originals=originals).copied == ("00_a.ipynb", "01_b.ipynb")
    return folder


def held(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir() if path.is_file()}


def test_the_first_copy_holds_the_notebooks_and_not_their_sources(mine: Path) -> None:
    assert held(mine) == {"00_a.ipynb": "00_a, first edition", "01_b.ipynb": "01_b, first edition"}


def test_a_changed_copy_is_kept_and_one_that_was_lost_comes_again(mine: Path, originals: Path) -> None:
    (mine / "00_a.ipynb").write_text("my answer", encoding="utf-8")
    (mine / "01_b.ipynb").unlink()
    assert update(mine, originals=originals) == Copied(copied=("01_b.ipynb",), kept=("00_a.ipynb",))
    assert held(mine) == {"00_a.ipynb": "my answer", "01_b.ipynb": "01_b, first edition"}


def test_a_new_original_takes_the_place_of_an_unchanged_copy_and_lies_once_beside_a_changed_one(
    mine: Path, originals: Path
) -> None:
    (mine / "00_a.ipynb").write_text("my answer", encoding="utf-8")
    for name in ("00_a", "01_b"):
        (originals / f"{name}.ipynb").write_text(f"{name}, second edition", encoding="utf-8")
    second = Copied(copied=("01_b.ipynb",), kept=("00_a.ipynb",), beside=("00_a.new.ipynb",))
    assert update(mine, originals=originals) == second
    assert held(mine) == {
        "00_a.ipynb": "my answer",
        "00_a.new.ipynb": "00_a, second edition",
        "01_b.ipynb": "01_b, second edition",
    }
    assert update(mine, originals=originals) == Copied(kept=("00_a.ipynb",)), "said and done once"
    (originals / "00_a.ipynb").write_text("third", encoding="utf-8")
    assert update(mine, originals=originals).beside == ("00_a.new-2.ipynb",)


def test_fresh_puts_what_was_changed_aside_each_time_under_another_name(mine: Path, originals: Path) -> None:
    for attempt in ("once", "twice"):
        (mine / "00_a.ipynb").write_text(attempt, encoding="utf-8")
        done = update(mine, fresh=True, originals=originals)
        assert (done.copied, len(done.aside)) == (("00_a.ipynb",), 1)
        assert held(mine)["00_a.ipynb"] == "00_a, first edition"
        assert held(mine)[done.aside[0]] == attempt
    assert held(mine).keys() == {"00_a.ipynb", "00_a.ipynb.bak", "00_a.ipynb-2.bak", "01_b.ipynb"}


def test_where_it_is_no_longer_known_what_was_copied_every_copy_that_differs_is_kept(
    mine: Path, originals: Path
) -> None:
    (mine / ".jupyter" / "originals.json").write_text("{", encoding="utf-8")
    (originals / "00_a.ipynb").write_text("second", encoding="utf-8")
    assert update(mine, originals=originals) == Copied(kept=("00_a.ipynb",), beside=("00_a.new.ipynb",))


def test_a_folder_that_cannot_be_a_copy_is_refused_in_words(tmp_path: Path, originals: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "none").mkdir()
    for folder, source, words in (
        (originals, originals, "holds the originals, which stay clean"),
        (originals / "mine", originals, "holds the originals, which stay clean"),
        (tmp_path / "file", originals, "is a file"),
        (tmp_path / "mine", tmp_path / "none", "there are no notebooks in"),
    ):
        with pytest.raises(UserError, match=words):
            update(folder, originals=source)
    assert sorted(path.name for path in originals.iterdir()) == ["00_a.ipynb", "00_a.py", "01_b.ipynb", "01_b.py"]


def test_what_was_done_is_told_in_one_line() -> None:
    done = Copied(("a", "b"), ("c", "d"), ("d.new.ipynb",))
    assert done.words() == "2 notebooks copied; 2 that you changed kept; newer originals put beside them: d.new.ipynb"
    assert Copied().words() == "nothing new to copy"
    assert Copied(("a",), aside=("a.bak",)).words() == "1 notebook copied; yours put aside: a.bak"
