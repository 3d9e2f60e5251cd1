"""Choices that stand in the address, so that a link shows what its sender saw, and that stay from page to page.

Streamlit's own `bind="query-params"` writes what a choice is called on the page; a run that gets another name would
break its links. Here the value itself is written. Whatever an address says is looked up among the options, never used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Literal, TypeVar

import streamlit as st

T = TypeVar("T", bound=Hashable)


def follow(key: str) -> str | None:
    """What the address says under `key` if it holds something new: a link was opened, or the way back was taken."""
    value = st.query_params.get(key)
    return value if value is not None and value != st.session_state.get(f"param {key}") else None


def set_param(key: str, value: str) -> None:
    """Writes the address; nothing for ""."""
    st.session_state[f"param {key}"] = value or None
    if value:
        st.query_params[key] = value
    elif key in st.query_params:
        del st.query_params[key]


def choose(
    key: str,
    label: str,
    options: Sequence[T],
    words: Callable[[T], str] = str,
    default: T | None = None,
    width: int | Literal["stretch"] = "stretch",
) -> T:
    """A list to choose one of `options` from, by default `default` or the first. There must be one.

    words: what an option is called. It must not change while the page is open: the browser knows an option by it.
    """
    by_text = {str(option): option for option in options}
    kept = st.session_state.get(f"chosen {key}")
    value = follow(key)
    found = kept if value is None else by_text.get(value, kept)
    if found not in options:
        found = options[0] if default is None else default
    widget = f"choose {key}"
    called = _unlike(options, words)
    st.session_state[widget] = found
    found = st.selectbox(
        label,
        options,
        key=widget,
        format_func=called,
        width=width,
        on_change=_keep,
        args=(key, widget),
    )
    st.session_state[f"chosen {key}"] = found
    set_param(key, str(found))
    return found


def choose_some(key: str, label: str, options: Sequence[str], words: Callable[[str], str], most: int) -> list[str]:
    """A list to choose several of `options` from, at most `most`; the order in which they were chosen is kept."""
    value = follow(key)
    kept = st.session_state.get(f"chosen {key}", []) if value is None else value.split(",")
    widget = f"choose {key}"
    called = _unlike(options, words)
    st.session_state[widget] = [one for one in kept if one in options][:most]
    found: list[str] = st.multiselect(
        label,
        options,
        key=widget,
        format_func=called,
        max_selections=most,
        on_change=_keep,
        args=(key, widget),
    )
    st.session_state[f"chosen {key}"] = found
    set_param(key, ",".join(found))
    return found


def _keep(key: str, widget: str) -> None:
    """What the reader has just chosen. Streamlit forgets a list that is not drawn, as on another page."""
    st.session_state[f"chosen {key}"] = st.session_state[widget]


def _unlike(options: Sequence[T], words: Callable[[T], str]) -> Callable[[T], str]:
    """`words`, with the option itself where two have the same: the browser knows an option by its words."""
    called = {option: words(option) for option in options}
    times = Counter(called.values())
    return lambda option: called[option] if times[called[option]] == 1 else f"{called[option]} ({option})"


def set_choice(key: str, value: object) -> None:
    """Chooses from anywhere in a script: the list follows when it is drawn next, after `st.rerun` or elsewhere."""
    st.session_state[f"chosen {key}"] = value
