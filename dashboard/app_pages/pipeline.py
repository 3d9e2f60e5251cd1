"""Who worked, who waited and why: the timeline of a step, where each rank's time went, and other schedules."""

from __future__ import annotations

import streamlit as st

from dashboard.data import cached_runs
from dashboard.page import timeline_window
from dashboard.page.query_params import choose
from dashboard.page.render import escaped, figure, theme
from dashboard.runs.run_header import choose_run, follow_timeline
from lab import analysis
from lab.analysis.step.longest_idle import waits_most
from lab.views import figures
from lab.views.figures import how_to_read
from lab.views.timeline.streamlit import timeline

st.title("Pipeline")
chosen = choose_run(steps=True)
run = chosen.run

over = ""
if not chosen.cluster and run.status == "finished" and run.job.hardware.cluster:
    over = choose(
        "over", "Laid over it", ["", run.job.hardware.cluster], lambda name: f"replay on {name}" if name else "nothing"
    )

drawn = cached_runs.timeline_of(chosen.key, chosen.cluster, chosen.step, over)
state = timeline(
    drawn,
    key="timeline",
    selected_rank=chosen.rank,
    window=timeline_window.from_address(),
    theme=theme(),
    label="Timeline",
)
timeline_window.to_address(state.window)
follow_timeline(state, chosen)

figure(
    figures.bubble(run, step=chosen.step, theme=theme(), selected=chosen.rank),
    "bubble",
    how_to_read.BUBBLE,
)
if (step := analysis.typical_step(run.recording) if chosen.step is None else chosen.step) is not None:
    st.write(escaped(waits_most(run, step)))
if run.job.plan.pp > 1:
    figure(
        figures.bubble_curve([run], run.job, theme=theme()),
        "curve",
        "The line is the schedule's formula; the marks are this run, measured and with one unit of time an action.",
    )
    with st.expander("The same job under every schedule", on_change="rerun") as others:
        if others.open:
            figure(
                figures.schedules(run.job, theme=theme()),
                "schedules",
                how_to_read.SCHEDULES,
            )
