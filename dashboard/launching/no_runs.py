"""What stands where there is nothing yet: why, and one click that changes it."""

from __future__ import annotations

from typing import NoReturn

import streamlit as st

from dashboard.launching.queue_actions import start_demo
from dashboard.page.navigation import go


def no_runs() -> NoReturn:
    """Ends the page of a store without runs."""
    with st.container(border=True):
        st.subheader("No runs yet")
        st.write(
            "Eight real processes train a small GPT on this machine: 2 data × 2 tensor × 2 pipeline, with ZeRO-1. "
            "It takes some seconds, and you can watch."
        )
        with st.container(horizontal=True):
            if st.button("Run the demo", type="primary", icon=":material/play_arrow:"):
                start_demo()
            if st.button("Choose a plan of my own", icon=":material/tune:"):
                go("launch")
    st.stop()
