"""What a plan means, before it is run: the same figures as of a run, of its simulation on a described cluster."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from dashboard.data import cached_runs
from dashboard.page.render import ROOM, figure, theme
from engine.job.job import Fault, Hardware, Job
from engine.prediction.formulas import parameters
from lab.analysis.comparison.run_metrics import bubble, bytes_by_axis
from lab.facade import Run
from lab.running.simulation import simulate_job
from lab.store.clusters import default_cluster, find_cluster
from lab.views import figures
from lab.views.figures.grid.grid import Colour
from lab.views.timeline.streamlit import timeline
from lab.wording import nbytes, percent, rate, seconds


@st.cache_resource(max_entries=32, show_spinner="Working out what this plan means …")
def simulated(job: Job, clusters: str) -> Run:
    """One step of the job on its cluster, or on the one its size suggests."""
    store = cached_runs.store()
    return Run.of(simulate_job(job, find_cluster(job.hardware.cluster, store), store=store))


def meaning(job: Job) -> None:
    """Numbers and figures of what `job` would do. Raises `JobRefused` if it breaks a rule."""
    name = job.hardware.cluster or default_cluster(job, published=False)
    one_step = replace(job, training=replace(job.training, steps=1), hardware=Hardware(cluster=name), fault=Fault())
    run = simulated(one_step, cached_runs.clusters_key())
    memory = run.summary["memory"]["per_rank"]
    facts = {
        "Processes": str(job.world_size),
        "Parameters": rate(parameters(job), ""),
        "Bubble": percent(bubble(run)),
        "Peak memory": nbytes(max(row["total_peak"] for row in memory)),
        "Sent a step": nbytes(sum(bytes_by_axis(run).values())),
        f"Step on {name}": seconds(run.summary["step_seconds"]),
    }
    with st.grid(min_column_width=150):
        for what, words in facts.items():
            st.metric(what, words)
    pictures(run, "stage")


def pictures(run: Run, colour: Colour) -> None:
    """What a simulation of a plan does, where its ranks are, and what they hold. colour: of the grid's ranks."""
    timeline(cached_runs.drawn_of(run), key="plan timeline", theme=theme(), label="Timeline of the plan")
    with st.grid(min_column_width=ROOM):
        with st.container():
            figure(
                figures.grid(run, colour=colour, theme=theme()), "plan grid", f"Each ball is a rank, by its {colour}."
            )
        with st.container():
            figure(figures.memory(run, theme=theme()), "plan memory", "Predicted peak of each category, by rank.")
