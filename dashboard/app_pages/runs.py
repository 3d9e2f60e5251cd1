"""All runs: what they were, how they ended, and what came out. From here they are opened, compared, named, deleted."""

from __future__ import annotations

import hashlib
from typing import Any

import streamlit as st

from dashboard.data import cached_runs
from dashboard.launching.no_runs import no_runs
from dashboard.launching.queue_actions import queue, watch
from dashboard.page.error_box import in_words
from dashboard.page.render import escaped, in_markdown
from dashboard.runs.run_actions import actions, deleted_runs, undo_bar
from dashboard.runs.runs_table import STATUSES, Listed, Wanted, frame, wanted

COLUMNS = {
    "★": st.column_config.TextColumn(width=30),
    "Status": st.column_config.TextColumn(width=100),
    "ZeRO": st.column_config.NumberColumn(format="%d", width=55),
    "Micro-batches": st.column_config.NumberColumn(format="%d", width=105),
    "Loss": st.column_config.NumberColumn(format="%.4f", help="Of the last step"),
    "Step, ms": st.column_config.NumberColumn(format="%.1f", help="Median, the first step left out"),
    "Bubble, %": st.column_config.NumberColumn(format="%.0f", help="Idle ÷ total on the compute streams, as measured"),
    "Peak, MB": st.column_config.NumberColumn(format="%.2f", help="Highest total of the fullest rank"),
    "Mesh": st.column_config.TextColumn(help="data × tensor × pipeline, and further axes"),
    "Fault": st.column_config.TextColumn(width=215, help="Put in on purpose: `lab bugs` lists them"),
    "One process": st.column_config.TextColumn(help="Losses, gradient norms and weights against one process"),
    "Tags": st.column_config.MultiselectColumn(color="auto"),
    "Started": st.column_config.DatetimeColumn(format="MMM DD, HH:mm:ss"),
}


def _filters(runs: list[Listed]) -> Wanted:
    tags = sorted({tag for run in runs for tag in run.notes.tags})
    present = [status for status in STATUSES if any(run.entry.info.status == status for run in runs)]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = st.text_input(
            "Search", key="search", placeholder="zero=3, a name, a message …", bind="query-params", max_chars=200
        )
        statuses = st.pills("Status", present, selection_mode="multi", key="status", bind="query-params")
        some = st.multiselect("Tags", tags, key="tags", bind="query-params") if tags else []
        starred = st.toggle("Starred only", key="starred", bind="query-params")
    return Wanted(words, tuple(statuses or ()), tuple(some), starred)


@in_words()
def _waiting() -> None:
    """What is under way or waits for its turn. Where nobody may write, the queue cannot be read, but runs can."""
    for launch in queue().active():
        with st.container(horizontal=True, vertical_alignment="center"):
            st.write(f"**{launch.state}** · {cached_runs.plan_words(launch.job.options())}")
            if st.button("Watch", key=f"watch {launch.id}", icon=":material/sensors:"):
                watch(launch.id)
            if st.button("Cancel", key=f"cancel {launch.id}", icon=":material/stop_circle:"):
                queue().cancel(launch.id)
                st.rerun()


@st.fragment(run_every=3.0)
@in_words()
def _table() -> None:
    """Anew every three seconds: runs come from notebooks and terminals too."""
    _waiting()
    runs = [Listed(entry, cached_runs.notes(entry.info.id)) for entry in cached_runs.entries()]
    undo_bar()
    if not runs:
        deleted_runs()
        no_runs()
    shown = wanted(runs, _filters(runs))
    if not shown:
        st.info("No run fits all of that. Take a filter away.")
        return
    st.caption(f"{len(shown)} of {len(runs)} runs, newest first")
    picked = _chosen_rows(shown)
    actions(picked)
    ended = [run for run in picked if run.entry.info.message]
    for run in ended:
        info = run.entry.info
        st.error(in_markdown(info.message), title=escaped(f"{info.status}: {cached_runs.called(info)}"))
    deleted_runs()


def _chosen_rows(shown: list[Listed]) -> list[Listed]:
    """The table, and the runs whose rows are chosen, in the order of choice.

    Streamlit knows a chosen row by its place alone. So a list of other runs is another table, which begins with the
    rows of the same runs chosen: one that comes in must not take the place of the one that shall be deleted.
    """
    ids = [run.entry.info.id for run in shown]
    before = [ids.index(one) for one in st.session_state.get("picked", []) if one in ids]
    rows = frame(shown)
    hidden = [name for name in ("★", "Name", "Tags", "Message") if not rows[name].astype(bool).any()]
    chosen: Any = st.dataframe(
        rows,
        key=f"table {hashlib.blake2b(' '.join(ids).encode(), digest_size=8).hexdigest()}",
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": before}},
        hide_index=True,
        column_config=COLUMNS,
        column_order=[str(name) for name in rows if name not in hidden],
        height=460 if len(rows) > 12 else "auto",
        alt=f"{len(rows)} runs, newest first",
    )
    picked = [shown[i] for i in chosen.selection.rows if i < len(shown)]
    st.session_state["picked"] = [run.entry.info.id for run in picked]
    return picked


st.title("Runs")
_table()
