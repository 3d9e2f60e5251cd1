"""Who sends what to whom: bytes by axis and operation, from rank to rank, and the ledger of one rank."""

from __future__ import annotations

import streamlit as st

from dashboard.page.render import ROOM, figure, theme
from dashboard.runs.run_header import choose_run
from lab.views import figures
from lab.views.figures import how_to_read

st.title("Communication")
chosen = choose_run(steps=True)
run = chosen.run
if run.job.world_size == 1:
    st.info("One rank has nobody to send anything to. Choose another run, or launch one with dp, tp or pp above 1.")
    st.stop()
with st.grid(min_column_width=ROOM):
    with st.container():
        figure(
            figures.communication(run, theme=theme()),
            "communication",
            how_to_read.COMMUNICATION,
        )
    with st.container():
        figure(
            figures.communication_matrix(run, step=chosen.step, theme=theme(), selected=chosen.rank),
            "matrix",
            how_to_read.MATRIX,
        )
figure(
    figures.ledger(run, step=chosen.step, theme=theme(), selected=chosen.rank),
    "ledger",
    "What the chosen rank, by default rank 0, sends and receives in a step: bytes, calls, seconds.",
)
