"""The timeline in a Streamlit page."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from lab.views.timeline.data import portable
from lab.views.timeline.joiner import module

_COMPONENT = st.components.v2.component(
    "shardlab_timeline", html='<div class="timeline-host"></div>', js=module("streamlit.js")
)


@dataclass(frozen=True)
class Drawn:
    """A timeline as the page gets it. stamp: equal for equal timelines."""

    value: dict[str, Any]
    stamp: str


def drawn(data: dict[str, Any]) -> Drawn:
    """What `lab.views.timeline.timeline_data` made, packed for the page. To be kept: of 80,000 boxes this takes a
    while.
    """
    value = portable(data)
    return Drawn(value, hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest())


@dataclass(frozen=True)
class TimelineState:
    """What the reader chose: rank and row number (None for an idle stretch), cursor and window in ms."""

    selected_rank: int | None = None
    selected_op: int | None = None
    cursor_ms: float | None = None
    window: tuple[float, float] | None = None


def timeline(
    data: Drawn,
    *,
    key: str,
    selected_rank: int | None = None,
    selected_op: int | None = None,
    cursor_ms: float | None = None,
    window: tuple[float, float] | None = None,
    group: str = "",
    theme: Literal["auto", "light", "dark"] = "auto",
    label: str = "",
) -> TimelineState:
    """Shows a timeline and returns what the reader chose; a choice runs the script again.

    selected_rank, selected_op, cursor_ms, window: take effect when they are not what the script said before; until
    then the reader's choice stays. group: timelines of one group share window and cursor. key: names this one.
    """
    found = _COMPONENT(
        key=key,
        data={
            "drawn": data.value,
            "stamp": data.stamp,
            "selectedRank": selected_rank,
            "selectedOp": selected_op,
            "cursorMs": cursor_ms,
            "window": None if window is None else list(window),
            "group": group,
            "theme": theme,
            "label": label,
        },
        default={"selected": {"rank": selected_rank, "op": selected_op}, "cursor_ms": cursor_ms, "window": window},
        on_selected_change=_nothing,
        on_cursor_ms_change=_nothing,
        on_window_change=_nothing,
    )
    chosen = found.selected or {}
    shown = None if found.window is None else (float(found.window[0]), float(found.window[1]))
    return TimelineState(chosen.get("rank"), chosen.get("op"), found.cursor_ms, shown)


def _nothing() -> None:
    """Streamlit keeps a state only if something listens to it."""
