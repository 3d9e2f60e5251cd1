"""The page turns light or dark while it is open: its script runs again, for it drew the figures in the other colours.

Streamlit itself tells a script of the theme with the next run only (its issue 15287), and starts none.
"""

from __future__ import annotations

import streamlit as st

# a transition ends when the colour that the theme sets has changed, whoever changed it: the reader, or the system
_CSS = """
i { position: absolute; visibility: hidden; background: var(--st-background-color); transition: background 1ms; }
"""
_JS = """
export default function ({ data, parentElement, setTriggerValue }) {
  const paper = parentElement.querySelector("i");
  let asked = data.theme;
  const look = () => {
    const [red, green, blue] = getComputedStyle(paper).backgroundColor.match(/[0-9.]+/g).map(Number);
    const theme = red + green + blue < 382 ? "dark" : "light";
    if (theme !== asked) setTriggerValue("changed", (asked = theme));
  };
  paper.addEventListener("transitionend", look);
  return () => paper.removeEventListener("transitionend", look);
}
"""
_COMPONENT = st.components.v2.component("shardlab_theme_changes", html="<i></i>", css=_CSS, js=_JS)


def follow_theme() -> None:
    """To be called once on every page."""
    _COMPONENT(key="theme changes", data={"theme": st.context.theme.type}, on_changed_change=lambda: None)
