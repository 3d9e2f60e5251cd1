"""The browser's side of the widgets: their scripts and their one style sheet."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from lab.views.timeline import joiner

_HERE = Path(__file__).parent
_FOLDERS = (_HERE, *(_HERE / room for room in ("explorer", "question", "views")))


def module(name: str) -> str:
    """A widget's script with what it imports in front: it reaches the browser alone, so it can fetch nothing."""
    return joiner.module(name, *_FOLDERS)


@cache
def styles() -> str:
    """The style sheet that all widgets share."""
    return (_HERE / "style.css").read_text(encoding="utf-8")
