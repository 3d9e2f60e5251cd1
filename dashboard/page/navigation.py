"""The way to another page, from anywhere in a script."""

from __future__ import annotations

import time
from typing import NoReturn

import streamlit as st

_KEY = "going"
_HEARD = 0.3
"""Seconds that a browser gets to hear that a whole page is drawn, upon which it stops asking for parts of the old."""


def go(page: str, **params: str) -> NoReturn:
    """Leaves for a page of `app_pages`, with `params` in its address.

    Not by `st.switch_page` at once: a part that is drawn anew by a clock may be asked for once more before the browser
    hears of the other page. Streamlit draws it afterwards, as of the old page, and the browser clears the new one.
    """
    st.session_state[_KEY] = (page, params)
    st.rerun()


def leave() -> None:
    """To be called by the frame of all pages: goes where `go` wants to."""
    if _KEY in st.session_state:
        page, params = st.session_state.pop(_KEY)
        time.sleep(_HEARD)
        st.switch_page(f"app_pages/{page}.py", query_params=params)
