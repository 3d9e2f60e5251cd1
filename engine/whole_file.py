"""Writing a file in one step: a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A draft beside `path`, for the block to write, which then takes its place. If the block raises, it is gone."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Raises `OSError`; then the old file, if there is one, is as it was."""
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")
