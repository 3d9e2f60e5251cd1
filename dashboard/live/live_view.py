"""A run at this moment: its numbers, what each rank does, the newest step, memory and losses."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching import launched_together
from dashboard.launching.queue_actions import queue
from dashboard.live.live_figures import losses_figure, memory_now_figure
from dashboard.live.live_run import Wish, snapshot
from dashboard.page.error_box import in_words, of_run
from dashboard.page.navigation import go
from dashboard.page.query_params import set_choice
from dashboard.page.render import escaped, figure, in_markdown, theme
from engine.job.job import Job
from engine.job.mesh import mesh_of
from lab.launcher.queue import Launch
from lab.live import Snapshot
from lab.views.timeline import timeline_data
from lab.views.timeline.streamlit import drawn, timeline
from lab.wording import loss_words, nbytes, seconds

EVERY = 1.0
"""Seconds between two looks."""
SIGNS = {"computing": "▶", "waiting": "…", "writing": "✎", "done": "✔", "starting": "○", "unknown": "?"}


@in_words()
def show(wish: Wish, goes_on: bool, live: bool) -> None:
    """One look at a run that went on, or did not, when the page was drawn.

    Asks for the whole page anew once the run has begun or ended: its controls are others then.
    """
    launched_together.strip()
    now = snapshot(wish.run_id)
    active = now.info.status in ("queued", "running")
    if now.info.status != wish.status or (goes_on and not active and not launched_together.goes_on()):
        st.rerun()
    if now.info.status == "queued":
        _waits(queue().get(wish.run_id))
        return
    with of_run(wish.run_id):
        _headline(now, queue().get(wish.run_id) if wish.queued else None)
        _draw(now, live)


def _draw(now: Snapshot, live: bool) -> None:
    _numbers(now)
    _step(now)
    left, right = st.columns([3, 2])
    with left:
        _ranks(now)
    with right:
        if now.memory_now:
            how = "Bar: at the end of the newest step. Mark: the most at any time."
            figure(memory_now_figure(now, theme()), "memory now", how, still=live)
    if now.steps:
        how = "Against one process where that is known already: both lie on each other if the run is right."
        figure(losses_figure(now, theme()), "loss now", how, still=live)


def _waits(launch: Launch) -> None:
    """A run whose turn has not come."""
    before = [other.id for other in queue().active()].index(launch.id) if launch.state == "queued" else 0
    words = f"It waits for {before} before it: runs take turns for the cores." if before else "It is next."
    st.info(escaped(_sentence(launch.message) or words), title="In the queue", icon=":material/hourglass_empty:")


def _headline(now: Snapshot, launch: Launch | None) -> None:
    """launch: of a run that the queue carries out."""
    info = now.info
    plan = escaped(cached_runs.plan_words(info.job))
    if now.problem:
        st.error(in_markdown(now.problem), title="This run cannot be read")
    elif info.status == "running":
        cancelling = launch is not None and launch.cancelling
        st.progress(
            min(len(now.steps) / max(1, now.steps_wanted), 1.0),
            "Ending its processes …" if cancelling else f"{plan} · step {len(now.steps):,} of {now.steps_wanted:,}",
        )
        if launch is not None and launch.message and not cancelling:
            st.warning(escaped(_sentence(launch.message)), title="This run does not go on")
    elif info.status == "simulated":
        st.info(f"{plan}: simulated, so nothing goes on here.")
    elif info.status == "finished":
        found = cached_runs.run_of(cached_runs.key_of(info.id)).badge
        words = "Finished" if found.state == "none" else found.title
        show = {"bad": st.error, "odd": st.warning}.get(found.tone, st.success)
        show(f"{words}. {plan}, {len(now.steps)} steps.")
    else:
        st.warning(in_markdown(_ending(now)), title=f"{info.status.capitalize()} after {len(now.steps)} steps")
    if info.status != "running" and now.steps and st.button("Look at it closely", icon=":material/search:"):
        set_choice("run", info.id)
        go("pipeline", run=info.id)


def _ending(now: Snapshot) -> str:
    return now.info.message.strip() or "Its folder does not say why."


def _sentence(message: str) -> str:
    """A message of the queue, which begins without a capital."""
    text = message.strip().rstrip(".")
    return text and f"{text[0].upper()}{text[1:]}."


def _numbers(now: Snapshot) -> None:
    last = now.steps[-1] if now.steps else None
    peaks = [most.get("total", 0) for most in now.memory_peak.values()]
    moved = sum(ranks[0] for ranks in now.bytes_so_far.values() if ranks)
    facts = {
        f"Steps of {now.steps_wanted:,}": f"{len(now.steps):,}",
        "Loss": "–" if last is None else loss_words(last.loss),
        "Tokens a second": "–" if now.tokens_per_second is None else f"{now.tokens_per_second:,.0f}",
        "Peak memory": nbytes(max(peaks)) if peaks else "–",
        "Moved by rank 0": nbytes(moved),
        "Time so far" if now.info.status == "running" else "Time": _long(now.seconds),
    }
    if now.info.status == "running":
        facts["Left, about"] = "–" if now.eta_seconds is None else _long(now.eta_seconds)
    with st.grid(min_column_width=150):
        for what, words in facts.items():
            st.metric(what, words)


def _long(value: float) -> str:
    """A time that may take minutes."""
    return seconds(value) if value < 120 else f"{value / 60:,.0f} min"


def _step(now: Snapshot) -> None:
    """The timeline of the newest step. A new step leaves the zoom as it is."""
    if now.recording is None or now.latest_step is None:
        return
    job = Job.from_options(**now.info.job)
    found = timeline_data(now.recording, job, now.latest_step)
    timeline(drawn(found), key="live timeline", theme=theme(), label="Timeline of the newest step")


def _ranks(now: Snapshot) -> None:
    """What each rank does at this moment."""
    if not now.ranks or not now.info.job:
        return
    mesh = mesh_of(Job.from_options(**now.info.job))
    rows = []
    for rank in now.ranks:
        at = mesh.coordinate(rank.rank)
        still = f", for {seconds(rank.still_for)}" if rank.still_for >= 1 else ""
        rows.append(
            {
                "Rank": rank.rank,
                ", ".join(at): ", ".join(map(str, at.values())),
                "Now": f"{SIGNS[rank.phase]} {rank.phase}{still}",
                "Action": rank.action,
                "Step": "" if rank.step is None else str(rank.step),
                "CPU, s": rank.cpu_seconds,
            }
        )
    st.markdown("**What each rank does now**" if now.info.status == "running" else "**What each rank did last**")
    table = pd.DataFrame(rows)
    unknown = [name for name in ("Action", "CPU, s") if not table[name].any()]  # as of a run whose tables are made
    st.dataframe(
        table.drop(columns=unknown),
        hide_index=True,
        key="ranks",
        alt="What each rank does",
        column_config={
            "CPU, s": st.column_config.NumberColumn(format="%.1f"),
            "Rank": st.column_config.NumberColumn(width=50),
        },
    )
