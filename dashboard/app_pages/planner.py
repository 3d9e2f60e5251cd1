"""Which plan for a model on so many GPUs: every legal plan, those that fit, fastest first, and why others are out."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching.plan_preview import pictures, simulated
from dashboard.launching.queue_actions import start, watch
from dashboard.page.query_params import choose
from dashboard.page.render import escaped
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.planner.explain import in_runs
from engine.planner.result import Candidate, Search
from engine.prediction.published_models import PRESETS, preset
from lab.running.downscale import scaled_down, what_changed
from lab.running.execute import checked
from lab.running.planning import plan
from lab.store.clusters import cluster_names
from lab.wording import parameter_count, percent

OWN = "my own"
ANY = -1
_POWERS = [ANY, 1, 2, 4, 8, 16, 32, 64]
# of a model of one's own: least, most, step, and where the slider starts
SIZES = {
    "layers": (4, 128, 4, 32),
    "hidden": (512, 16384, 512, 4096),
    "heads": (8, 128, 8, 32),
    "seq": (512, 8192, 512, 2048),
    "batch": (64, 4096, 64, 512),
}
GPUS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096]


@st.cache_data(max_entries=32, show_spinner="Trying every legal plan …")
def _searched(model: str | Job, cluster: str, gpus: int, fixed: tuple[tuple[str, int], ...], clusters: str) -> Search:
    return plan(model, cluster, gpus, refine=3, **dict(fixed))


def _wish() -> tuple[str | Job, str, int]:
    with st.grid(min_column_width=220):
        name = choose("model", "Model", [*PRESETS, OWN], default="gpt3-175b")
        cluster = choose("on", "Cluster", cluster_names(cached_runs.store()), default="a100-dgx")
        gpus = st.select_slider("GPUs", GPUS, 1024, key="gpus", bind="query-params")
    if name != OWN:
        st.caption(f"{parameter_count(preset(name).params)}. {preset(name).source}")
        return name, cluster, gpus
    options: dict[str, Any] = {"precision": "mixed18", "vocab": 51200, "tied": True, "microbatches": 1, "steps": 1}
    with st.grid(min_column_width=180):
        for size, (least, most, step, first) in SIZES.items():
            options[size] = st.slider(size, least, most, first, step, key=size, bind="query-params")
    return Job.from_options(**options), cluster, gpus


def _fixed() -> tuple[tuple[str, int], ...]:
    """Knobs that the reader fixes, to ask for the best plan of a kind, or why there is none."""
    found = []
    with st.expander("Only plans of a kind: why not pure data parallel?"), st.grid(min_column_width=140):
        for knob, values in (("tp", _POWERS), ("pp", _POWERS), ("zero", [ANY, 0, 1, 2, 3])):
            value = choose(f"fix {knob}", knob, values, lambda value: "any" if value == ANY else str(value))
            found += [] if value == ANY else [(knob, value)]
    return tuple(found)


def _row(one: Candidate) -> dict[str, Any]:
    p = one.job.plan
    return {
        "dp × tp × pp": f"{p.dp} × {p.tp} × {p.pp}",
        "Step, s": one.seconds,
        "How": "replayed" if one.refined else "estimated",
        "MFU, %": 100 * one.mfu,
        "GB a GPU": one.bytes / 1e9,
        "Schedule": p.schedule if p.pp > 1 else "",
        "Chunks": p.chunks,
        "Blocks": in_runs(p.partition) if p.partition and p.pp > 1 else "",
        "ZeRO": p.zero,
        "Micro-batch": one.job.microbatch_size,
        "Micro-batches": p.microbatches,
        "SP": one.job.scatters_sequence,
        "Recompute": p.recompute,
        "Idle, %": 100 * one.bubble,
        "Idle GPUs": one.idle_gpus,
    }


COLUMNS = {
    "Step, s": st.column_config.NumberColumn(format="%.3g"),
    "How": st.column_config.TextColumn(help="The best few are replayed, and stand before those that are estimated"),
    "MFU, %": st.column_config.NumberColumn(format="%.1f"),
    "GB a GPU": st.column_config.NumberColumn(format="%.1f"),
    "Blocks": st.column_config.TextColumn(
        width=190,
        help="Blocks of the stages, first to last, where a plan cuts the model elsewhere than into equal parts",
    ),
    "Idle, %": st.column_config.NumberColumn(format="%.1f", help="Pipeline bubble of the busiest rank, estimated"),
}


def _results(found: Search) -> Candidate:
    """The table of plans; returns the one that is looked at."""
    best = found.winner
    with st.grid(min_column_width=150):
        st.metric("Legal plans", f"{found.legal:,}")
        st.metric(f"Fit in {found.limit_bytes / 1e9:.3g} GB", f"{found.fitting:,}")
        st.metric("Fastest step", f"{best.seconds:.3g} s")
        st.metric("MFU", percent(best.mfu))
    shown = found.ranked[:20]
    rows = pd.DataFrame([_row(one) for one in shown])
    chosen = st.dataframe(
        rows,
        key="plans",
        on_select="rerun",
        selection_mode="single-row",
        hide_index=True,
        column_config=COLUMNS,
        column_order=[str(name) for name in rows if name != "Blocks" or rows[name].any()],
        alt="Plans that fit, the fastest first",
    )
    picked = [row for row in chosen.selection.rows if row < len(shown)]
    return shown[picked[0]] if picked else best


def _why(found: Search) -> None:
    st.subheader("Why this one, and why others are out")
    for sentence in found.sentences:
        st.markdown(f"- {escaped(sentence)}")
    st.caption(f"Model states are counted as {found.terms}. A share of each GPU's memory is kept free.")


def _closer(one: Candidate, cluster: str) -> None:
    """One plan in detail, and a small sister of it to run here."""
    p = one.job.plan
    st.subheader(f"dp={p.dp} tp={p.tp} pp={p.pp}, ZeRO-{p.zero}")
    small = scaled_down(one.job)
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Launch a small version for real", type="primary", icon=":material/rocket_launch:"):
            wished = checked(Job.from_options(small, cluster=""), store=cached_runs.store())
            (launch,) = start([wished], [f"small dp={p.dp} tp={p.tp} pp={p.pp}"])
            watch(launch.id)
        st.caption(escaped(what_changed(one.job, small)))
    with st.expander("Its timeline, grid and memory, simulated", on_change="rerun") as detail:
        if detail.open:
            run = simulated(Job.from_options(one.job, steps=1, cluster=cluster), cached_runs.clusters_key())
            pictures(run, "node")


st.title("Planner")
try:
    model, cluster, gpus = _wish()
    found = _searched(model, cluster, gpus, _fixed(), cached_runs.clusters_key())
    closer = _results(found)
    _why(found)
    _closer(closer, cluster)
except JobRefused as error:
    st.error(escaped(str(error)), title="No plan for this wish")
