"""The form of a job, made from the job's own types: the names, choices and explanations that the command line has.

Nothing is limited here that the job itself does not limit: what a wish breaks is told in the job's own words.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import streamlit as st

from dashboard.data import cached_runs
from engine.job.bugs import BUGS
from engine.job.job import CHOICES, Job
from lab.cli.options import SECTIONS, field_docs, whole_numbers
from lab.running.experiments import DEMO
from lab.store.clusters import cluster_names

FIRST = ("dp", "tp", "pp", "zero", "schedule", "microbatches", "chunks", "layers", "hidden", "batch", "steps")
"""What is seen at once; the rest is one click away."""
LABELS = {
    "dp": "Data parallel",
    "tp": "Tensor parallel",
    "pp": "Pipeline parallel",
    "zero": "ZeRO stage",
    "lr": "Learning rate",
    "seq": "Sequence length",
    "microbatches": "Micro-batches",
    "vocab": "Vocabulary",
}


def label(name: str) -> str:
    """What a knob is called on the page."""
    words = LABELS.get(name) or name.replace("_", " ").capitalize()
    return words if words.lower().replace("-", "") == name else f"{words} ({name})"


def fill(job: Job) -> None:
    """Puts a job into the form: before it is drawn, or in a callback."""
    for name, value in job.options().items():
        st.session_state[_key(name)] = ",".join(map(str, value)) if isinstance(value, tuple) else value
    st.session_state["job filled"] = True


def job_form() -> Job:
    """Shows the form and returns the job. Raises `JobRefused` for a value that is none; rules are not checked."""
    if not st.session_state.get("job filled"):
        fill(Job.from_options(**DEMO))
    kinds = {name: hint for part in SECTIONS.values() for name, hint in get_type_hints(part).items()}
    docs = {name: doc for part in SECTIONS.values() for name, doc in field_docs(part).items()}
    options: dict[str, Any] = {}
    with st.grid(min_column_width=170):
        for name in FIRST:
            options[name] = _knob(name, kinds[name], docs.get(name, ""))
    with st.expander("All other options"):
        for title, part in SECTIONS.items():
            rest = [each.name for each in fields(part) if each.name not in FIRST]
            if rest:
                st.caption(title.capitalize())
                with st.grid(min_column_width=170):
                    for name in rest:
                        options[name] = _knob(name, kinds[name], docs.get(name, ""))
    options["partition"] = whole_numbers(options["partition"]) if options["partition"] else None
    options["text"] = options["text"] or None
    return Job.from_options(**options)


def _key(name: str) -> str:
    return f"job {name}"


def _knob(name: str, kind: Any, doc: str) -> Any:
    """One knob, as its type wants it."""
    more: dict[str, Any] = {"key": _key(name), "help": doc or None, "persist_state": "session"}
    if name == "cluster":
        return st.selectbox(
            label(name), ["", *cluster_names(cached_runs.store())], format_func=lambda c: c or "none", **more
        )
    if name == "bug":
        return st.selectbox(label(name), ["", *BUGS.names], format_func=lambda bug: bug or "none", **more)
    if name in CHOICES:
        on_change = _bring_chunks if name == "schedule" else None
        return st.selectbox(label(name), CHOICES[name].names, on_change=on_change, **more)
    if get_origin(kind) is Literal:
        return st.selectbox(label(name), get_args(kind), **more)
    if kind is bool:
        return st.toggle(label(name), **more)
    if kind is int:
        return st.number_input(label(name), step=1, **more)
    if kind is float:
        return st.number_input(label(name), format="%g", **more)
    return st.text_input(label(name), max_chars=300, **more)


def _bring_chunks() -> None:
    """A schedule has the number of chunks it needs."""
    schedule = st.session_state[_key("schedule")]
    st.session_state[_key("chunks")] = Job().under(schedule).plan.chunks
