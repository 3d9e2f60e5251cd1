"""The runs that were started together in this window: how far each is, and the way to compare them."""

from __future__ import annotations

import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching.queue_actions import queue
from dashboard.page.navigation import go
from dashboard.page.query_params import set_choice
from dashboard.page.render import escaped
from lab.analysis.comparison.lines import MOST_COMPARED
from lab.launcher.queue import Launch
from lab.store.stored_run import RunNotFound

_SIGNS = {"queued": "○", "running": "▶", "finished": "✔"}


def strip() -> None:
    """Shows them, if there are several; once all have ended, they can be compared."""
    launches = _launches()
    if len(launches) < 2:
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        for launch in launches:
            name = launch.name or cached_runs.plan_words(launch.job.options())
            done = f" {launch.steps_done}/{launch.job.training.steps}" if launch.state == "running" else ""
            st.markdown(f"{_SIGNS.get(launch.state, '✘')} {escaped(name)}{done}")
        ids = [launch.id for launch in launches if launch.state == "finished"]
        ready = len(ids) >= 2 and not any(launch.active for launch in launches)
        if st.button("Compare them", type="primary", disabled=not ready, icon=":material/compare_arrows:"):
            ids = ids[:MOST_COMPARED]
            set_choice("runs", ids)
            set_choice("base", ids[0])
            go("compare", runs=",".join(map(str, ids)))


def goes_on() -> bool:
    """Whether one of them is still to end."""
    return any(launch.active for launch in _launches())


def _launches() -> list[Launch]:
    found = []
    for run_id in st.session_state.get("batch", []):
        try:
            found.append(queue().get(run_id))
        except RunNotFound:  # the store was cleared meanwhile
            continue
    return found
