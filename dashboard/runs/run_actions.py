"""What can be done with the runs chosen in the table: open, compare, name, tag, star, delete and undo."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching.queue_actions import watch
from dashboard.page.navigation import go
from dashboard.page.query_params import set_choice
from dashboard.page.render import in_markdown
from dashboard.runs.runs_table import Listed
from lab.analysis.comparison.lines import MOST_COMPARED
from lab.store.notes import LONGEST_NAME, write_notes
from lab.store.stored_run import RunNotFound, StoreError
from lab.store.trash import KEPT_DAYS, delete, deleted, restore


def actions(picked: Sequence[Listed]) -> None:
    """A row of buttons for the runs that are chosen."""
    if not picked:
        st.caption(f"Choose rows: 1 to open, 2 to {MOST_COMPARED} to compare. The first chosen is the baseline.")
        return
    ids = [run.entry.info.id for run in picked]
    one = len(ids) == 1
    with st.container(horizontal=True):
        if st.button("Open", type="primary" if one else "secondary", disabled=not one, icon=":material/open_in_new:"):
            _open(picked[0])
        few = 2 <= len(ids) <= MOST_COMPARED
        if st.button(
            "Compare", type="primary" if few else "secondary", disabled=not few, icon=":material/compare_arrows:"
        ):
            set_choice("runs", ids)
            set_choice("base", ids[0])
            go("compare", runs=",".join(ids))
        starred = all(run.notes.star for run in picked)
        st.button(
            "Take star off" if starred else "Star",
            icon=":material/star:",
            on_click=_each,
            args=(ids, lambda run_id: _note(run_id, star=not starred)),
        )
        key = f"noting {st.session_state.get('saved', 0)}"  # once saved, another one, which is closed
        with st.popover("Name and tags", icon=":material/sell:", key=key, on_change="rerun") as noting:
            if noting.open:
                _names(picked)
        st.button("Delete", icon=":material/delete:", on_click=_delete, args=(ids,))


def _open(run: Listed) -> None:
    info = run.entry.info
    if info.status in ("queued", "running"):
        watch(info.id)
    set_choice("run", info.id)
    go("pipeline", run=info.id)


def _names(picked: Sequence[Listed]) -> None:
    every = [tag for tag in picked[0].notes.tags if all(tag in run.notes.tags for run in picked)]
    with st.form("notes", border=False):
        # the list that hangs from the tags covers what comes next: not the button
        how = "Type one, press Enter"
        st.multiselect("Tags", every, key="note tags", default=every, accept_new_options=True, help=how)
        name, several = picked[0].notes.name, len(picked) > 1
        st.text_input("Name", name, key="note name", max_chars=LONGEST_NAME, disabled=several)
        st.form_submit_button("Save", on_click=_save, args=(picked, every))


def _save(picked: Sequence[Listed], every: Sequence[str]) -> None:
    """What the form says, and closes it. every: the tags that all of them had."""
    for run in picked:
        kept = [tag for tag in run.notes.tags if tag not in every]
        more = {} if len(picked) > 1 else {"name": st.session_state["note name"]}
        _note(run.entry.info.id, tags=[*kept, *st.session_state["note tags"]], **more)
    st.session_state["saved"] = st.session_state.get("saved", 0) + 1


def _note(run_id: str, **changes: object) -> None:
    try:
        write_notes(cached_runs.store().folder(run_id), **changes)
    except (ValueError, StoreError) as error:
        st.toast(in_markdown(str(error)), icon=":material/error:")


def _each(ids: Sequence[str], do: Callable[[str], None]) -> None:
    for run_id in ids:
        do(run_id)


def _delete(ids: Sequence[str]) -> None:
    gone = []
    for run_id in ids:
        try:
            delete(cached_runs.store(), run_id)
            gone.append(run_id)
        except (ValueError, RunNotFound, StoreError) as error:
            st.toast(in_markdown(str(error)), icon=":material/error:")
    if gone:
        st.session_state["deleted"] = gone


def undo_bar() -> None:
    """Says what was deleted last in this window, and takes it back."""
    gone: list[str] = st.session_state.get("deleted", [])
    if not gone:
        return
    with st.container(horizontal=True, vertical_alignment="center", border=True):
        words = "1 run deleted. It is" if len(gone) == 1 else f"{len(gone)} runs deleted. They are"
        st.write(f"{words} kept for {KEPT_DAYS:g} days.")
        st.button("Undo", icon=":material/undo:", on_click=_restore, args=(gone,))


def _restore(ids: Sequence[str]) -> None:
    for run_id in ids:
        try:
            restore(cached_runs.store(), run_id)
        except (RunNotFound, ValueError, StoreError) as error:
            st.toast(in_markdown(str(error)), icon=":material/error:")
    st.session_state["deleted"] = []


def deleted_runs() -> None:
    """Those that were deleted in this and other windows some time ago, to bring back."""
    gone = deleted(cached_runs.store())
    if not gone:
        return
    with st.expander(f"{len(gone)} deleted, kept for {KEPT_DAYS:g} days", icon=":material/delete:"):
        back = st.multiselect("Bring back", gone, key="bring back")
        st.button("Restore", disabled=not back, on_click=_restore, args=(back,))
