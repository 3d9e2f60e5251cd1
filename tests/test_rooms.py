"""The folders are the architecture: every room says what it is for, and none grows out of sight."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from docs.architecture_picture import PICTURE, heights, picture
from engine import HOME

ROOT = HOME.parent
ROOMS = sorted(path.parent for package in ("engine", "lab", "dashboard") for path in (ROOT / package).rglob("*.py"))
MOST_ROOMS, MOST_FILES = 12, 13


@pytest.mark.parametrize("room", dict.fromkeys(ROOMS), ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_says_what_it_is_for_what_it_may_import_and_where_to_start(room: Path) -> None:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    sentences = re.findall(r"[.?!](?=\s|$)", re.sub(r"`[^`]*`", "x", text))
    words = " ".join(text.split())
    assert len(sentences) >= 3 and "import" in words and "Start with" in words


@pytest.mark.parametrize("room", dict.fromkeys(ROOMS), ids=lambda room: str(room.relative_to(ROOT)))
def test_a_room_holds_no_more_than_can_be_surveyed(room: Path) -> None:
    inside = [path for path in room.iterdir() if path.name not in ("__init__.py", "__pycache__")]
    assert sum(path.is_dir() for path in inside) <= MOST_ROOMS
    assert sum(path.suffix == ".py" for path in inside) <= MOST_FILES


def test_each_file_that_a_room_sends_its_reader_to_is_there() -> None:
    for room in dict.fromkeys(ROOMS):
        text = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
        for name in re.findall(r"`([\w/]+\.(?:py|js))`", text.partition("Start with")[2]):
            assert (room / name).exists() or (ROOT / name).exists(), f"{room}: {name}"


def test_the_picture_of_the_architecture_is_that_of_the_code() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), "run `python -m docs.architecture_picture`"


def test_rooms_that_use_each_other_are_told() -> None:
    with pytest.raises(ValueError, match="a → b → a"):
        heights({"a": frozenset({"b"}), "b": frozenset({"a"})})
