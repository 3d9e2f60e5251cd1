"""Choices that stand in the address, so that a link shows what its sender saw, and that stay from page to page.

Streamlit's own `bind="query-params"` writes what a choice is called on the page; a run that gets another name would
break its links. Here the value itself is written. Whatever an address says is looked up among the options, never used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import streamlit as st

T = TypeVar("T", bound=Hashable)


def follow(key: str) -> str | None:
    """What the address says under `key` if it says something new: a link was opened, or the way back was taken."""
    said = st.query_params.get(key)
    return said if said is not None and said != st.session_state.get(f"told {key}") else None


def tell(key: str, said: str) -> None:
    """Writes the address; nothing for ""."""
    st.session_state[f"told {key}"] = said or None
    if said:
        st.query_params[key] = said
    elif key in st.query_params:
        del st.query_params[key]


def choose(
    key: str,
    label: str,
    options: Sequence[T],
    words: Callable[[T], str] = str,
    default: T | None = None,
    help: str = "",
) -> T:
    """A list to choose one of `options` from, by default `default` or the first. There must be one."""
    widget = f"choose {key}"
    by_text = {str(option): option for option in options}
    if (said := follow(key)) in by_text:
        st.session_state[widget] = by_text[str(said)]
    elif st.session_state.get(f"chosen {key}") in options:
        st.session_state.setdefault(widget, st.session_state[f"chosen {key}"])
    if st.session_state.get(widget) not in options:
        st.session_state[widget] = options[0] if default is None else default
    found: T = st.selectbox(label, options, key=widget, format_func=_unlike(options, words))
    st.session_state[f"chosen {key}"] = found
    tell(key, str(found))
    return found


def choose_some(key: str, label: str, options: Sequence[str], words: Callable[[str], str], most: int) -> list[str]:
    """A list to choose several of `options` from, at most `most`; the order in which they were chosen is kept."""
    widget = f"choose {key}"
    if (said := follow(key)) is not None:
        st.session_state[widget] = [one for one in said.split(",") if one in options][:most]
    elif widget not in st.session_state:
        st.session_state[widget] = st.session_state.get(f"chosen {key}", [])
    st.session_state[widget] = [one for one in st.session_state[widget] if one in options]
    found: list[str] = st.multiselect(
        label, options, key=widget, format_func=_unlike(options, words), max_selections=most
    )
    st.session_state[f"chosen {key}"] = found
    tell(key, ",".join(found))
    return found


def _unlike(options: Sequence[T], words: Callable[[T], str]) -> Callable[[T], str]:
    """`words`, with the option itself where two have the same: the browser knows an option by its words."""
    said = {option: words(option) for option in options}
    times = Counter(said.values())
    return lambda option: said[option] if times[said[option]] == 1 else f"{said[option]} ({option})"


def set_choice(key: str, value: object) -> None:
    """Chooses before the list is drawn: in a callback, or on the way to another page."""
    st.session_state[f"choose {key}"] = st.session_state[f"chosen {key}"] = value
