"""The dashboard's frame: its pages. `lab dashboard` serves this script; each page is a file in `app_pages/`."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.page.error_box import in_words
from dashboard.page.navigation import leave
from dashboard.page.theme_changes import follow_theme
from dashboard.page.timeline_window import turn_to

st.set_page_config(page_title="Shardlab", page_icon="🧩", layout="wide")
st.html(Path(__file__).parent / "style.css")

# one list: under headings Streamlit makes it of elements that are none of a list, which screen readers stumble over
PAGES = [
    st.Page("app_pages/runs.py", title="Runs", icon=":material/list:", default=True, help="All of them."),
    st.Page("app_pages/launch.py", title="Launch", icon=":material/rocket_launch:", help="Start real runs."),
    st.Page("app_pages/live.py", title="Live", icon=":material/sensors:", help="Watch a run while it goes on."),
    st.Page("app_pages/compare.py", title="Compare", icon=":material/compare_arrows:", help="Runs side by side."),
    st.Page("app_pages/pipeline.py", title="Pipeline", icon=":material/view_timeline:", help="Who waits, and why."),
    st.Page("app_pages/grid.py", title="Grid", icon=":material/deployed_code:", help="Ranks on their axes."),
    st.Page("app_pages/memory.py", title="Memory", icon=":material/memory:", help="Which bytes lie where."),
    st.Page("app_pages/communication.py", title="Communication", icon=":material/hub:", help="Who sends what."),
    st.Page("app_pages/planner.py", title="Planner", icon=":material/calculate:", help="What fits, what is fast."),
]

page = st.navigation(PAGES)
leave()
turn_to(page.url_path)
with in_words():
    page.run()
follow_theme()  # a page that stopped before has no figures
