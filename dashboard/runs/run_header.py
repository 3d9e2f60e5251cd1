"""The head of every page about one run: which run, which times, which rank. Each choice stands in the address."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching.no_runs import no_runs
from dashboard.page.query_params import choose, set_choice
from dashboard.page.render import escaped, figure, in_link, in_markdown, theme
from dashboard.runs.downloads import downloads
from engine.job.errors import JobRefused
from lab import analysis
from lab.facade import Run
from lab.store.clusters import cluster_names
from lab.store.folder import WHOLE
from lab.store.stored_run import RunCorrupt
from lab.verdict import RULE_IN_WORDS
from lab.views import figures
from lab.views.timeline.streamlit import TimelineState
from lab.wording import fault_told

MEASURED = ""
"""In place of a cluster's name: the times measured here."""
ALL = -1
"""In place of a rank: none is chosen."""


@dataclass(frozen=True)
class Chosen:
    """What a page shows. cluster: "" for measured times; rank and step: None where none is chosen."""

    key: cached_runs.Key
    run: Run
    cluster: str
    rank: int | None
    step: int | None


def choose_run(*, ranks: bool = True, steps: bool = False) -> Chosen:
    """Shows the choices and returns them; ends the page, in words, where there is nothing to show."""
    entries = cached_runs.entries()
    if not entries:
        no_runs()
    infos = {entry.info.id: entry.info for entry in entries}
    default = next((entry.info.id for entry in entries if entry.digest.get("steps")), entries[0].info.id)
    if (wished := st.query_params.get("run")) and wished not in infos:
        st.warning(f"The link names a run that is not in this store: {in_link(wished)}. Another one is shown.")
    run_id = choose("run", "Run", list(infos), lambda one: cached_runs.called(infos[one]), default)
    key = cached_runs.key_of(run_id)
    run = _readable(cached_runs.run_of(key))
    with st.grid(min_column_width=180, vertical_alignment="bottom"):
        cluster = _choose_times(run)
        shown = _replayed(key, cluster) if cluster else run
        rank = _choose_rank(run) if ranks else None
        step = _choose_step(shown) if steps else None
        downloads(key, shown, cluster)
    if infos[run_id].status in ("failed", "killed", "stopped"):
        st.warning(f"This run {in_markdown(_ended(run))} What it did before is shown.")
    if run.job.fault.bug:
        st.info(escaped(fault_told(run.job.fault.bug)), icon=":material/bug_report:")
    if run.status == "finished":
        _show_verdict(run)
    return Chosen(key, shown, cluster, rank, step)


def _show_verdict(run: Run) -> None:
    """The badge; behind it why, the numbers with their limits, and the microscope."""
    verdict = run.proof
    if verdict.badge.state == "none":
        return
    with st.expander(escaped(verdict.badge.title), key="verdict", on_change="rerun") as behind:
        if not behind.open:
            return
        st.write(escaped(verdict.why))
        st.caption(escaped(verdict.numbers))
        figure(figures.verdict(run, theme=theme()), "microscope", escaped(RULE_IN_WORDS))


def follow_timeline(state: TimelineState, chosen: Chosen) -> None:
    """A rank that the reader has chosen in the timeline is chosen on every page.

    Only a change there counts: what the timeline says may be older than the list of ranks.
    """
    before = st.session_state.get("rank in timeline", chosen.rank)
    st.session_state["rank in timeline"] = state.selected_rank
    if state.selected_rank not in (before, chosen.rank):
        set_choice("rank", ALL if state.selected_rank is None else state.selected_rank)
        st.rerun()


def _readable(run: Run) -> Run:
    """Ends the page for a run without anything to draw."""
    damage = run.message if run.status == "corrupt" else ""
    try:
        if not damage and run.steps:
            return run
    except RunCorrupt as error:
        damage = str(error) if run.status in WHOLE else ""  # others may have ended before there was anything to read
    if damage:
        st.error(
            f"This run's folder is damaged: {in_markdown(damage.rstrip('.'))}. The other runs are not touched by that."
        )
    else:
        going = {"queued": "It waits for its turn.", "running": "It goes on: its first step is not done yet."}
        words = going.get(run.status) or f"It {_ended(run)}"
        st.info(f"This run has completed no step. {in_markdown(words)}")
    st.stop()


def _ended(run: Run) -> str:
    verb = {"failed": "failed", "killed": "was killed", "stopped": "was stopped"}.get(run.status, run.status)
    why = run.message.strip().partition("\n")[0].rstrip(".")
    return f"{verb}: {why}." if why else f"{verb}."


def _choose_times(run: Run) -> str:
    if run.status == "simulated":
        return MEASURED
    words = {MEASURED: "Measured here"} | {name: f"Replayed on {name}" for name in cluster_names(cached_runs.store())}
    return choose("cluster", "Times", list(words), words.__getitem__)


def _replayed(key: cached_runs.Key, cluster: str) -> Run:
    try:
        return cached_runs.replayed(key, cluster)
    except (JobRefused, RunCorrupt) as error:
        st.error(in_markdown(str(error)))
        st.stop()


def _choose_rank(run: Run) -> int | None:
    ranks = range(run.job.world_size)
    if len(ranks) == 1:
        return None
    found = choose(
        "rank", "Rank", [ALL, *ranks], lambda rank: "all ranks" if rank == ALL else f"rank {rank}", width=130
    )
    return None if found == ALL else found


def _choose_step(run: Run) -> int | None:
    steps = analysis.recorded_steps(run.recording)
    if len(steps) < 2:
        return None
    typical = analysis.typical_step(run.recording)
    words = {step: f"step {step}{' (typical)' if step == typical else ''}" for step in steps}
    return choose("step", "Step", steps, words.__getitem__, typical)
