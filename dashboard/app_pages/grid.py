"""Where each rank sits on the data × tensor × pipeline grid, coloured by what one asks for."""

from __future__ import annotations

import streamlit as st

from dashboard.page.query_params import choose
from dashboard.page.render import figure, theme
from dashboard.runs.run_header import choose_run
from engine.job.mesh import mesh_of
from lab import analysis
from lab.views import figures
from lab.views.figures import how_to_read
from lab.views.figures.grid.grid import Colour

COLOURS: dict[Colour, str] = {
    "memory": "peak memory",
    "idle": "share of time idle",
    "stage": "pipeline stage",
    "node": "node of the cluster",
    "activity": "what it does at a moment",
}


st.title("Grid")
chosen = choose_run()
run = chosen.run
colour = choose("colour", "Coloured by", list(COLOURS), COLOURS.__getitem__)
at_ms = None
if colour == "activity":
    step = analysis.typical_step(run.recording)
    start, end = (0, 0) if step is None else analysis.step_window(run.recording, step)
    length = max(end - start, 1) / 1e6
    at_ms = st.slider("Moment of the step, ms", 0.0, length, length / 2)
figure(
    figures.grid(run, colour=colour, theme=theme(), selected=chosen.rank, at_ms=at_ms),
    "grid",
    how_to_read.GRID,
)
mesh = mesh_of(run.job)
if chosen.rank is not None:
    at = mesh.coordinate(chosen.rank)
    st.write(f"Rank {chosen.rank} is {at}.")
