"""What pages read: runs of the store and what is computed of them, each once for all windows.

Everything is kept under the state of the files it comes from, so that a run that goes on is read anew.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.recording.live_files import live_bytes
from lab.facade import Run
from lab.store.clusters import cluster_folder
from lab.store.folder import Entry, RunInfo, read_entry
from lab.store.index import signature, state_of
from lab.store.notes import Notes, read_notes
from lab.store.store import Store, settle
from lab.views.timeline import timeline_of_run
from lab.views.timeline.streamlit import Drawn, drawn
from lab.wording import degrees_words, fault_words, schedule_words, stored_degrees

Key = tuple[str, str, str]
"""Root of the store, id of a run, state of what is shown of it: of its folder, which changes with every step of a run
that goes on, and of the clusters that it may be replayed on.
"""


def store() -> Store:
    """The runs of this folder of runs."""
    return Store()


def entries() -> list[Entry]:
    """All runs, newest first."""
    return store().entries()


def key_of(run_id: str) -> Key:
    """Another key after each change of what the run's folder holds, so that what is cached under it is of now."""
    found = store()
    folder = found.folder(run_id)
    return str(found.root), run_id, f"{signature(folder)} {live_bytes(folder)} {clusters_key()}"


def clusters_key() -> str:
    """Another text for each store, and after each change of a cluster of its own, such as `lab calibrate` makes."""
    folder = cluster_folder(store())
    return " ".join([str(folder), *map(state_of, sorted(folder.glob("*.toml")))])


def run_of(key: Key) -> Run:
    """The run of a key. Whether one still goes on is looked at each time: who is killed leaves its folder as it was."""
    found = _kept(key)
    return _read(key) if found.status in ("queued", "running") else found


@st.cache_resource(max_entries=16, show_spinner=False)
def _kept(key: Key) -> Run:
    return _read(key)


def _read(key: Key) -> Run:
    root, run_id, _ = key
    found = Store(root)
    entry = read_entry(found.folder(run_id))
    return Run(Entry(settle(entry.info), entry.digest), found)


@st.cache_resource(max_entries=16, show_spinner="Replaying the run …")
def replayed(key: Key, cluster: str) -> Run:
    """The run on a described cluster. Raises `JobRefused`."""
    return run_of(key).replay(cluster)


def shown_run(key: Key, cluster: str = "") -> Run:
    """As measured, or as `cluster` would carry it out."""
    return replayed(key, cluster) if cluster else run_of(key)


@st.cache_resource(max_entries=24, show_spinner="Drawing the timeline …")
def timeline_of(key: Key, cluster: str, step: int | None, over: str) -> Drawn:
    """The timeline of a step, measured or on `cluster`; over: a cluster whose replay is laid over it, or ""."""
    run = shown_run(key, cluster)
    return drawn_of(run, step, replayed(key, over) if over else None)


def drawn_of(run: Run, step: int | None = None, predicted: Run | None = None) -> Drawn:
    """The timeline of a step of a run; predicted: laid over it."""
    return drawn(timeline_of_run(run, step, None if predicted is None else predicted.recording))


def notes(run_id: str) -> Notes:
    """The name and the words that the user gave a run."""
    return read_notes(store().folder(run_id))


def called(info: RunInfo) -> str:
    """What a run is called in lists: its own name, or its plan, with the time that tells it from others."""
    return f"{own_name(info) or plan_words(info.job)} · {when(info)}"


def own_name(info: RunInfo) -> str:
    """The name that somebody gave a run, with the fault that was put into it: a name must not hide that."""
    found = notes(info.id).name
    return found and f"{found}{_fault(info.job)}"


def plan_words(job: dict[str, Any]) -> str:
    """dp=2 tp=2 pp=2 · ZeRO-1 · 1F1B."""
    if not job:
        return "unknown plan"
    degrees = degrees_words(stored_degrees(job))
    return f"{degrees} · ZeRO-{job['zero']} · {schedule_words(job['schedule'])}{_fault(job)}"


def _fault(job: dict[str, Any]) -> str:
    return f" · {fault_words(job['bug'])}" if job.get("bug") else ""


def when(info: RunInfo) -> str:
    """Day and time to the second, and the end of the id, which no other run has."""
    return f"{info.created[5:19].replace('T', ' ')} {info.id[-4:]}"
