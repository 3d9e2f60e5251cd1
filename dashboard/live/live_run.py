"""Which run the live page shows: a launch of the queue, or a run that somebody else started."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import streamlit as st

from dashboard.launching.queue_actions import queue
from dashboard.page.error_box import in_words
from dashboard.page.no_runs import no_runs
from dashboard.page.query_params import choose
from dashboard.runs import cached_runs
from lab.launcher.queue import Launch
from lab.live import LiveRun, Snapshot
from lab.store.store import Store


@dataclass(frozen=True)
class Wish:
    """What is to be shown. launch: None for a run that the queue did not start; run_id: "" until it has begun.

    active: whether it was still to end when it was chosen.
    """

    launch: Launch | None
    run_id: str
    active: bool


def choose_live() -> Wish:
    """The choice, newest first; ends the page if nothing was ever started."""
    launches: dict[int, Launch] = {}
    with in_words():  # where nobody may write, the queue cannot be read, but runs can
        launches = {launch.id: launch for launch in queue().launches(20)}
    queued = {launch.run_id for launch in launches.values()}
    others = [entry.info for entry in cached_runs.entries() if entry.info.id not in queued]
    words = {f"launch {number}": _words(launch) for number, launch in launches.items()}
    words |= {info.id: cached_runs.called(info) for info in others[:20]}
    if not words:
        no_runs()
    active = [f"launch {launch.id}" for launch in launches.values() if launch.active]
    running = [info.id for info in others if info.status == "running"]
    first = next(iter([*active[::-1], *running, *words]))
    chosen = choose("live", "Run", list(words), words.__getitem__, default=first)
    if chosen.startswith("launch "):
        launch = launches[int(chosen.removeprefix("launch "))]
        return Wish(launch, launch.run_id or "", launch.active)
    return Wish(None, chosen, chosen in running)


def _words(launch: Launch) -> str:
    """It must not change while the list is open: the browser knows an option by its words."""
    return f"Launch {launch.id} · {launch.name or cached_runs.plan_words(launch.job.options())}"


@dataclass
class _Followed:
    """A run that is followed by all windows that look at it, one at a time."""

    run: LiveRun
    lock: threading.Lock = field(default_factory=threading.Lock)


@st.cache_resource(max_entries=8, show_spinner=False)
def _followed(root: str, run_id: str) -> _Followed:
    return _Followed(LiveRun(Store(root), run_id))


def snapshot(run_id: str) -> Snapshot:
    """The run as it is now."""
    found = _followed(str(cached_runs.store().root), run_id)
    with found.lock:
        return found.run.refresh()
