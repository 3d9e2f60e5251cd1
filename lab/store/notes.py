"""What a learner writes on a run: a name, a star, tags. Kept in its folder as `notes.json`, apart from measurements.

A run can be marked while it goes on, by several windows at once: each change replaces the file in one step, so that a
reader never sees half of it, and the newest wins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pydantic

from engine.plain_file import read_text
from engine.whole_file import write_whole
from lab.store.store import StoreError
from lab.wording import one_line

LONGEST_NAME, LONGEST_TAG, MOST_TAGS = 60, 24, 8
_FILE, _MOST_BYTES = "notes.json", 100_000


@dataclass(frozen=True, kw_only=True)
class Notes:
    name: str = ""
    star: bool = False
    tags: tuple[str, ...] = ()


_READER = pydantic.TypeAdapter(Notes)


def read_notes(folder: Path) -> Notes:
    """The notes of a run; none if there are none, or if they cannot be understood: they are no reason to hide a run."""
    path = folder / _FILE
    try:
        found = _READER.validate_json(read_text(path, _MOST_BYTES))
    except (OSError, ValueError):
        return Notes()
    return Notes(name=one_line(found.name)[:LONGEST_NAME], star=found.star, tags=_tags(found.tags)[:MOST_TAGS])


def write_notes(folder: Path, **changes: Any) -> Notes:
    """Changes some of the notes (`name`, `star`, `tags`) and returns them all.

    Raises `ValueError` for a name or tag that is too long, `StoreError` if the folder cannot be written.
    """
    if "name" in changes:
        changes["name"] = one_line(str(changes["name"]))
        if len(changes["name"]) > LONGEST_NAME:
            raise ValueError(f"a name has at most {LONGEST_NAME} letters, this one {len(changes['name'])}.")
    if "tags" in changes:
        changes["tags"] = _tags(changes["tags"])
        if long := next((tag for tag in changes["tags"] if len(tag) > LONGEST_TAG), None):
            raise ValueError(f"a tag has at most {LONGEST_TAG} letters: {long[:LONGEST_TAG]}… has {len(long)}.")
        if len(changes["tags"]) > MOST_TAGS:
            raise ValueError(f"a run has at most {MOST_TAGS} tags.")
    notes = replace(read_notes(folder), **changes)
    try:
        write_whole(folder / _FILE, json.dumps(asdict(notes), indent=2))
    except OSError as error:
        raise StoreError.writing(folder, error) from error
    return notes


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Without doubles, in order."""
    return tuple(dict.fromkeys(tag for tag in map(one_line, tags) if tag))
