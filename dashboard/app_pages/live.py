"""One run while it goes on: how far it is, what each rank does now, the newest step, and the way to end it."""

from __future__ import annotations

import streamlit as st
from dashboard.live_run import choose_live

from dashboard import live_view
from dashboard.launching import queue

st.title("Live")
wish = choose_live()
with st.container(horizontal=True, vertical_alignment="center"):
    live = st.toggle("Live", True, key="live", help="Off: the page stands still, and figures can be zoomed.")
    if wish.can_cancel and st.button("Cancel this run", icon=":material/stop_circle:", key="cancel"):
        queue().cancel(wish.launch.id)
        st.toast("The run is being ended.")
st.fragment(live_view.show, run_every=live_view.EVERY if live else None)(wish)
