"""Figures of the lab in a page of the dashboard: in its colours, with the title as text that wraps."""

from __future__ import annotations

import re
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from lab.views.figures.style.palette import CONFIG, Theme

SHOWN = {**CONFIG, "toImageButtonOptions": {"format": "svg"}}
STILL = {**CONFIG, "displayModeBar": False, "scrollZoom": False}
"""For figures that are drawn anew all the time: a zoom in them would be lost, so there is none."""

ROOM = 480
"""Pixels that a figure needs beside another one; with less they stand one below the other."""
MOST_TOLD = 2000
"""Letters of a message; all of it is in the run's folder."""


def theme() -> Theme:
    """Of the page that looks."""
    return "dark" if st.context.theme.type == "dark" else "light"


def figure(fig: go.Figure, key: str, how: str = "", *, still: bool = False, **options: Any) -> Any:
    """Shows a figure, and returns what was chosen in it. how: how to read it. key: its name within the page.

    The figure itself loses its title: a copy takes plotly longer than all the rest.
    """
    title = plain(fig.layout.title.text or "")
    st.markdown(f"**{escaped(title)}**")
    fig.layout.title = {"text": "", "automargin": False}
    if not fig.data:
        fig.layout.margin.t = 10
    if still:
        fig.layout.dragmode = False
    found = st.plotly_chart(
        fig, theme=None, key=key, config=STILL if still else SHOWN, alt=title or key, width="stretch", **options
    )
    if how:
        st.caption(how)
    return found


def plain(text: str) -> str:
    """Text with plotly's few tags as plain text."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def in_markdown(message: str) -> str:
    """What a run says of its end, or an error, letter for letter; of a very long one the beginning."""
    text = message.strip()
    return escaped(text if len(text) <= MOST_TOLD else f"{text[:MOST_TOLD]} …")


def in_link(name: str) -> str:
    """What a link says, in quotes and letter for letter; of a very long one the beginning."""
    return escaped(repr(name[:60]))


def escaped(text: str) -> str:
    """Text as Markdown that shows it letter for letter, whatever a run is called."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~<>$:^&=])", r"\\\1", text)
