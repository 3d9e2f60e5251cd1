"""Two to six runs side by side: what was set differently, what came out, and their timelines on one axis."""

from __future__ import annotations

import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching.no_runs import no_runs
from dashboard.page import timeline_window
from dashboard.page.query_params import choose, choose_some
from dashboard.page.render import escaped, in_link, in_markdown
from dashboard.runs import comparison
from engine.job.errors import JobRefused
from lab.analysis.comparison.lines import MOST_COMPARED, refuse
from lab.store.clusters import cluster_names
from lab.store.folder import RunInfo
from lab.store.stored_run import RunCorrupt


def _choose() -> tuple[list[cached_runs.Key], str]:
    """The runs, the baseline first, and the cluster that all are replayed on, "" for times as they are."""
    entries = cached_runs.entries()
    infos = {entry.info.id: entry.info for entry in entries if entry.digest.get("steps")}
    if not infos:
        no_runs()
    told = _not_comparable({entry.info.id: entry.info for entry in entries if entry.info.id not in infos}, list(infos))
    ids = choose_some("runs", "Runs", list(infos), lambda one: cached_runs.called(infos[one]), MOST_COMPARED)
    if told:
        st.warning(" ".join([*told, "Choose at least two runs." if len(ids) < 2 else "The others are compared."]))
        if len(ids) < 2:
            st.stop()
    if len(ids) < 2:
        st.info("Choose at least two runs, here or in the table of runs.", icon=":material/compare_arrows:")
        st.stop()
    left, right = st.columns([3, 2])
    with left:
        base = choose("base", "Baseline", ids, lambda one: cached_runs.called(infos[one]))
    with right:
        words = {"": "As measured or simulated"} | {
            name: f"Replayed on {name}" for name in cluster_names(cached_runs.store())
        }
        cluster = choose("cluster", "Times", list(words), words.__getitem__)
    return [cached_runs.key_of(one) for one in (base, *[other for other in ids if other != base])], cluster


def _not_comparable(others: dict[str, RunInfo], whole: list[str]) -> list[str]:
    """Of each run that the link names and that cannot be compared: why."""
    told = []
    for wished in filter(None, st.query_params.get("runs", "").split(",")):
        if wished in others and others[wished].status == "corrupt":
            damage = in_markdown(others[wished].message.rstrip("."))
            told.append(f"The folder of run {escaped(wished)} is damaged: {damage}.")
        elif wished in others:
            told.append(f"Run {escaped(wished)} has completed no step ({others[wished].status}).")
        elif wished not in whole:
            told.append(f"The link names a run that is not in this store: {in_link(wished)}.")
    return told


st.title("Compare")
keys, cluster = _choose()
try:
    on = ["" if cached_runs.run_of(key).status == "simulated" else cluster for key in keys]
    runs = [cached_runs.shown_run(key, where) for key, where in zip(keys, on, strict=True)]
    refuse(runs)
    called = comparison.titles(runs)
    if any(on):
        st.caption(f"Times are those of replays on {cluster}. Memory, bytes and losses are as in the runs themselves.")
    comparison.legend(called)
    above = st.container()  # filled below: what takes a while must not keep the timelines waiting
    comparison.differing(runs)
    st.subheader("Timelines")
    drawn = [cached_runs.timeline_of(key, where, None, "") for key, where in zip(keys, on, strict=True)]
    timeline_window.to_address(
        comparison.timelines(list(zip(called, drawn, strict=True)), timeline_window.from_address())
    )
    with above:
        comparison.sentences(runs)
    st.subheader("Numbers")
    comparison.deltas(runs)
    comparison.numbers_file(runs)
    comparison.pictures(runs, called)
except (JobRefused, RunCorrupt, ValueError) as error:
    st.error(in_markdown(str(error)), title="These runs cannot be compared")
