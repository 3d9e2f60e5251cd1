"""Start runs: a form of the job's own types, what the plan would mean, and the command that does the same."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching.form import fill, job_form, label
from dashboard.launching.plan_preview import meaning
from dashboard.launching.queue_actions import start, watch
from dashboard.page.error_box import in_words
from dashboard.page.render import escaped
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from lab.running.execute import CheckedJob, checked
from lab.running.experiments import PRESETS, jobs_of
from lab.store.notes import LONGEST_NAME
from lab.store.store import StoreError
from lab.wording import command_line

VARIED: dict[str, tuple[Any, ...]] = {
    "zero": (0, 1, 2, 3),
    "schedule": SCHEDULES.names,
    "microbatches": (1, 2, 4, 8, 16),
    "dp": (1, 2, 4, 8),
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 4, 8),
    "layers": (2, 4, 8, 16),
    "bucket_kb": (20, 40, 160, 640, 4000),
    "overlap": (True, False),
    "sequence_parallel": (False, True),
    "recompute": ("none", "selective", "full"),
}


def _take(name: str) -> None:
    preset = PRESETS[name]
    fill(jobs_of(Job.from_options(**preset.base), preset.knob, preset.values)[0])
    st.session_state["vary"] = preset.knob or None
    st.session_state["vary values"] = list(preset.values)
    st.session_state["question"] = preset.question


def _presets() -> None:
    with st.container(horizontal=True):
        for name, preset in PRESETS.items():
            st.button(name, on_click=_take, args=(name,), help=preset.question)
    if question := st.session_state.get("question"):
        st.caption(question)


def _variants() -> tuple[str, tuple[Any, ...]]:
    """The knob that several runs differ in, and its values."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.session_state.setdefault("vary", None)
        knob = st.selectbox(
            "Start several that differ in",
            [None, *VARIED],
            key="vary",
            persist_state="session",
            placeholder="nothing: one run",
            format_func=lambda name: "nothing: one run" if name is None else label(name),
        )
        if knob is None:
            return "", ()
        known = list(VARIED[knob])
        chosen = [value for value in st.session_state.get("vary values", []) if value in known]
        st.session_state["vary values"] = chosen or known[:2]
        values = st.multiselect("Values", known, key="vary values", persist_state="session")
    return knob, tuple(values)


def _start(wished: list[CheckedJob], name: str, knob: str) -> None:
    names = [name if len(wished) == 1 else f"{name} {knob}={one.job.options()[knob]}".strip() for one in wished]
    try:
        launches = start(wished, names)
    except StoreError as error:
        st.error(escaped(str(error)))
        return
    st.session_state["batch"] = [launch.id for launch in launches]
    watch(launches[0].id)


def _same_elsewhere(jobs: list[Job], parity: bool) -> None:
    """The same runs from a terminal, or from a file under version control."""
    with st.expander("The same from a terminal, or as a job file"):
        st.code("\n".join(command_line(job, parity=parity) for job in jobs), language="bash")
        st.code(jobs[0].to_toml(), language="toml")
        st.download_button(
            "Download the job file", jobs[0].to_toml(), "job.toml", "application/toml", on_click="ignore"
        )


@st.fragment
@in_words()
def _page() -> None:
    _presets()
    try:
        job = job_form()
        knob, values = _variants()
        jobs = jobs_of(job, knob, values)
        with st.container(horizontal=True, vertical_alignment="bottom"):
            name = st.text_input("Name", key="launch name", max_chars=LONGEST_NAME - 20, placeholder="optional")
            parity = st.toggle("Prove it against one process", True, key="launch parity")
        wished = [checked(one, parity=parity, store=cached_runs.store()) for one in jobs]
    except JobRefused as error:
        st.error(escaped(str(error)), title="This job cannot run")
        return
    words = "Start" if len(jobs) == 1 else f"Start {len(jobs)} runs"
    if st.button(words, type="primary", icon=":material/play_arrow:", key="start"):
        _start(wished, name, knob)
    _same_elsewhere(jobs, parity)
    st.subheader("What this plan means")
    try:
        meaning(jobs[0])
    except JobRefused as error:
        st.info(f"{escaped(str(error))} It can be run, but not be predicted.")


st.title("Launch")
_page()
