"""The part of the step that a timeline shows, in the address: `window=2.5-40` is from 2.5 to 40 ms."""

from __future__ import annotations

import math
import re

import streamlit as st

from dashboard.page.query_params import follow, set_param

Window = tuple[float, float]
_TEXT = re.compile(r"(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)")


def turn_to(page: str) -> None:
    """Forgets, on the way to another page, which window a link wished for and which one the address has."""
    if st.session_state.get("page of window") != page:
        st.session_state["page of window"] = page
        st.session_state.pop("wished window", None)
        st.session_state.pop("param window", None)


def from_address() -> Window | None:
    """The window of the link that was opened, in every run of the page's script.

    It has to be said again, whatever the reader does: to a timeline a change is a wish, and nothing would be one.
    """
    value = follow("window")
    if value is not None:
        st.session_state["wished window"] = parsed(value)
    wished: Window | None = st.session_state.get("wished window")
    return wished


def to_address(window: Window | None) -> None:
    """Keeps the window in the page's address; None takes it out."""
    set_param("window", "" if window is None else written(window))


def written(window: Window) -> str:
    """As the address has it: "1.5-2.25", in milliseconds."""
    return f"{window[0]:.4f}".rstrip("0").rstrip(".") + "-" + f"{window[1]:.4f}".rstrip("0").rstrip(".")


def parsed(text: str) -> Window | None:
    """What `written` wrote; None for anything else."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    start, end = float(found[1]), float(found[2])
    return (start, end) if math.isfinite(end) and start < end else None
