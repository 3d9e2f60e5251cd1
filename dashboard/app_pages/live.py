"""One run while it goes on: how far it is, what each rank does now, the newest step, and the way to end it."""

from __future__ import annotations

import streamlit as st

from dashboard.launching import launched_together
from dashboard.launching.queue_actions import queue
from dashboard.live.live_run import choose_live
from dashboard.live.live_view import EVERY, show

st.title("Live")
wish = choose_live()
goes_on = wish.active or launched_together.goes_on()
with st.container(horizontal=True, vertical_alignment="center"):
    words = "Off: the page stands still, and every figure can be zoomed."
    live = goes_on and st.toggle("Live", True, key="live on", help=words, persist_state="session")
    if wish.queued and wish.active and st.button("Cancel this run", icon=":material/stop_circle:", key="cancel"):
        queue().cancel(wish.run_id)
        st.toast("The run is being ended.")
st.fragment(show, run_every=EVERY if live else None)(wish, goes_on, live)
