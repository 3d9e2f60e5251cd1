"""The dashboard's frame: its pages. `lab dashboard` serves this script; each page is a file in `app_pages/`."""

from __future__ import annotations

import streamlit as st

from dashboard.trouble import in_words

st.set_page_config(page_title="Shardlab", page_icon="🧩", layout="wide")

PAGES = {
    "": [
        st.Page("app_pages/runs.py", title="Runs", icon=":material/list:", default=True, help="All of them."),
        st.Page("app_pages/launch.py", title="Launch", icon=":material/rocket_launch:", help="Start real runs."),
        st.Page("app_pages/live.py", title="Live", icon=":material/sensors:", help="Watch a run while it goes on."),
        st.Page("app_pages/compare.py", title="Compare", icon=":material/compare_arrows:", help="Runs side by side."),
    ],
    "One run": [
        st.Page("app_pages/pipeline.py", title="Pipeline", icon=":material/view_timeline:", help="Who waits, and why."),
        st.Page("app_pages/grid.py", title="Grid", icon=":material/deployed_code:", help="Ranks on their axes."),
        st.Page("app_pages/memory.py", title="Memory", icon=":material/memory:", help="Which bytes lie where."),
        st.Page("app_pages/communication.py", title="Communication", icon=":material/hub:", help="Who sends what."),
    ],
    "Plan": [
        st.Page("app_pages/planner.py", title="Planner", icon=":material/calculate:", help="What fits, what is fast."),
    ],
}

page = st.navigation(PAGES)
with in_words():
    page.run()
