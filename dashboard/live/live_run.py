"""Which run the live page shows: one of the queue, or one that somebody else started."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching.no_runs import no_runs
from dashboard.launching.queue_actions import queue
from dashboard.page.error_box import in_words
from dashboard.page.query_params import choose
from dashboard.page.render import in_link
from lab.live import LiveRun, Snapshot
from lab.store.folder import Status
from lab.store.store import Store


@dataclass(frozen=True)
class Wish:
    """What is to be shown. queued: whether the queue carries it out, so that it can be cancelled from here.

    status: when it was chosen.
    """

    run_id: str
    queued: bool
    status: Status

    @property
    def active(self) -> bool:
        """Whether it was still to end."""
        return self.status in ("queued", "running")


def choose_live() -> Wish:
    """The choice, newest first; ends the page if nothing was ever started."""
    ours: list[str] = []
    with in_words():  # where nobody may write, the queue cannot be read, but runs can
        ours = [launch.id for launch in queue().active()]
    infos = {entry.info.id: entry.info for entry in cached_runs.entries()}
    if not infos:
        no_runs()
    wished = st.query_params.get("live")
    if wished and wished not in infos:
        st.warning(f"The link names a run that is not in this store: {in_link(wished)}. Another one is shown.")
    going = [run_id for run_id, info in infos.items() if info.status == "running"]
    kept = [run_id for run_id in (wished, st.session_state.get("chosen live")) if run_id in infos]
    shown = list(dict.fromkeys([*ours, *going, *list(infos)[:20], *kept]))
    words = {run_id: cached_runs.called(infos[run_id]) for run_id in shown if run_id in infos}
    chosen = choose("live", "Run", list(words), words.__getitem__, default=next(iter(words)))
    return Wish(chosen, chosen in ours, infos[chosen].status)


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
