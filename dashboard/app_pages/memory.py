"""Which bytes lie where: peaks by category, bytes over time, and what each ZeRO stage would keep."""

from __future__ import annotations

import streamlit as st

from dashboard.page.render import figure, theme
from dashboard.runs.run_header import choose_run
from lab.views import figures
from lab.views.figures import how_to_read

st.title("Memory")
chosen = choose_run()
run = chosen.run
simulated = run.status == "simulated"
figure(
    figures.memory(run, theme=theme(), selected=chosen.rank),
    "memory",
    how_to_read.MEMORY_SIMULATED if simulated else how_to_read.MEMORY,
)
figure(
    figures.memory_over_time(run, rank=chosen.rank or 0, theme=theme()),
    "over time",
    "Bytes that one rank holds, by category, over the steps.",
)
figure(
    figures.memory_by_zero(run, theme=theme(), selected=chosen.rank),
    "by zero",
    "The same job under each ZeRO stage: the formula, and beside it what this run measured.",
)
with st.expander("Who keeps which part of a weight matrix", on_change="rerun") as shards:
    if shards.open:
        figure(
            figures.shards(run, theme=theme(), selected=chosen.rank),
            "shards",
            how_to_read.SHARDS,
        )
