"""The lab's figures. Built once, shown by notebooks, dashboard and report alike.

The functions here take a run; each file holds the pure function behind one figure. It may import `analysis` and the
engine, and plotly. Start with the functions below, then `style` for what all figures share.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
import plotly.io

from engine.job.schedules import SCHEDULES
from engine.recording.tables import Recording
from lab import analysis
from lab.analysis.recorded_run import HasRecording
from lab.analysis.step.time_shares import time_shares
from lab.verdict import Distances, verdict_of
from lab.views.figures.communication.communication import communication_figure, links_figure, matrix_figure
from lab.views.figures.communication.ledger import ledger_figure
from lab.views.figures.communication.replicas import all_reduce_bytes
from lab.views.figures.comparison.compared import communication_compared, idle_compared, losses, memory_compared
from lab.views.figures.comparison.microscope import microscope_figure
from lab.views.figures.grid.grid import Colour, activity_grid, grid_figure, node_grid
from lab.views.figures.memory.memory import memory_figure
from lab.views.figures.memory.memory_by_zero import measured
from lab.views.figures.memory.memory_time import Panel, memory_panels
from lab.views.figures.memory.zero import zero_savings
from lab.views.figures.pipeline.bubble import bubble_figure
from lab.views.figures.plans import bubble_curve, memory_by_zero, schedules, shards
from lab.views.figures.style.palette import CONFIG, Theme, empty
from lab.views.figures.style.run_styles import run_colours, run_looks
from lab.views.figures.style.selected_rank import checked, recorded
from lab.views.figures.timeline.comparison import comparison_figure
from lab.views.figures.timeline.timeline import timeline_figure
from lab.wording import degrees_words

__all__ = [
    "HasRecording",
    "all_reduce_bytes",
    "bubble",
    "bubble_curve",
    "communication",
    "communication_compared",
    "communication_matrix",
    "grid",
    "idle_compared",
    "ledger",
    "losses",
    "memory",
    "memory_by_zero",
    "memory_compared",
    "memory_over_time",
    "run_colours",
    "run_looks",
    "schedules",
    "shards",
    "timeline",
    "verdict",
    "zero_savings",
]


def _keep_figures_local() -> None:
    """plotly.js offers to upload a figure to a cloud service unless told not to; told here for every
    renderer.
    """
    for name in plotly.io.renderers:
        renderer = plotly.io.renderers[name]
        if hasattr(renderer, "config"):
            renderer.config = {**(renderer.config or {}), **CONFIG}


_keep_figures_local()


def timeline(
    run: HasRecording, step: int | None = None, theme: Theme = "light", replay: Recording | None = None
) -> go.Figure:
    """Ranks × time of one step; with its replay, if there is one, on the same axis, a lane of it below each lane."""
    step = analysis.typical_step(run.recording) if step is None else step
    if replay is not None and step is not None:
        return comparison_figure(run.recording, replay, run.job, step=step, theme=theme)
    by_hand = run.summary["bubble"]["formula"] is None
    return timeline_figure(run.recording, run.job, step=step, theme=theme, by_hand=by_hand)


def grid(
    run: HasRecording,
    colour: Colour = "memory",
    theme: Theme = "light",
    selected: int | None = None,
    at_ms: float | None = None,
) -> go.Figure:
    """The data × tensor × pipeline grid; selected: a rank whose groups are made to stand out.

    colour: by peak "memory", "idle" share, pipeline rank ("stage"), "node" of the run's cluster, or the "activity"
    `at_ms` ms into the typical step (default: in its middle).
    """
    checked(selected, run.job)
    if colour == "node":
        return node_grid(run.job, getattr(run, "cluster", None), theme=theme, selected=selected)
    if colour == "activity":
        return _activity(run, at_ms, theme, selected)
    return grid_figure(run.job, grid_values(run, colour), colour=colour, theme=theme, selected=selected)


def _activity(run: HasRecording, at_ms: float | None, theme: Theme, selected: int | None) -> go.Figure:
    step = analysis.typical_step(run.recording)
    if step is None:
        return empty("What each rank does", "No step was completed.", theme)
    start, end = analysis.step_window(run.recording, step)
    at_ns = (end - start) // 2 if at_ms is None else min(max(round(at_ms * 1e6), 0), end - start)
    doing = analysis.activities(run.recording, step, at_ns)
    like = run.recording.stands_for or {rank: rank for rank in doing}
    everybody = {rank: doing[other] for rank, other in like.items()}
    return activity_grid(run.job, everybody, at_ns / 1e9, theme=theme, selected=selected)


def grid_values(run: HasRecording, colour: Colour) -> dict[int, float]:
    """What colours each rank: peak bytes, or idle ÷ total in the typical step."""
    if colour == "memory":
        peaks = {row["rank"]: row["total_peak"] for row in run.summary["memory"]["per_rank"]}
        like = run.recording.stands_for or {rank: rank for rank in peaks}
        return {rank: peaks.get(rank, peaks.get(other, 0)) for rank, other in like.items()}
    step = analysis.typical_step(run.recording)
    if colour == "stage" or step is None:
        return {}
    shares = time_shares(run.recording, step)
    idle = {rank: sum(row[c] for c in analysis.CAUSES) / sum(row.values()) for rank, row in shares.items()}
    like = run.recording.stands_for or {rank: rank for rank in idle}
    return {rank: idle[other] for rank, other in like.items()}


def memory(run: HasRecording, theme: Theme = "light", selected: int | None = None) -> go.Figure:
    """Peak bytes of each rank by category, beside the predicted ones."""
    found, mine = run.summary["memory"], checked(selected, run.job)
    if mine not in {row["rank"] for row in found["per_rank"]}:
        mine = recorded(mine, run.recording.stands_for)
    return memory_figure(found["per_rank"], found["predicted_per_rank"], theme=theme, selected=mine)


def memory_over_time(
    run: HasRecording,
    rank: int = 0,
    step: int | None = None,
    theme: Theme = "light",
    selected: int | None = None,
    ranks: Sequence[int] = (),
    others: Sequence[HasRecording] = (),
) -> go.Figure:
    """Bytes one rank, or the one that stands for it, holds over time, in one step or all of them.

    selected: the rank to show instead of `rank`. ranks: several of them, below each other; others: the same rank of
    other runs, below this one. At most `memory_time.MOST_PANELS` are drawn.
    """
    for one in (rank, *ranks):
        checked(one, run.job)
    rank = rank if checked(selected, run.job) is None else selected or 0
    if others:
        chosen = [(f"{_name(one)}, rank {min(rank, one.job.world_size - 1)}", one, rank) for one in (run, *others)]
    else:
        chosen = [(f"Rank {one}", run, one) for one in ranks or (rank,)]
    return memory_panels([_panel(name, one, of, step) for name, one, of in chosen], theme=theme)


def _name(run: HasRecording) -> str:
    plan = run.job.plan
    degrees = degrees_words(plan.degrees)
    return f"{degrees} ZeRO-{plan.zero} {SCHEDULES[plan.schedule].label}"


def _panel(name: str, run: HasRecording, rank: int, step: int | None) -> Panel:
    rank = min(rank, run.job.world_size - 1)
    like = run.recording.stands_for.get(rank, rank)
    window = None if step is None else analysis.step_window(run.recording, step)
    predicted = measured(run.summary["memory"]["predicted_per_rank"], rank, run.recording.stands_for)
    return Panel(name, run.recording, like, window, None if predicted is None else predicted["total_peak"])


def communication(run: HasRecording, theme: Theme = "light") -> go.Figure:
    """Bytes by axis and operation, counted beside predicted."""
    return communication_figure(run.summary["communication"], theme=theme)


def ledger(
    run: HasRecording,
    theme: Theme = "light",
    selected: int | None = None,
    step: int | None = None,
    times: bool = True,
) -> go.Figure:
    """Bytes of one rank, by default rank 0, by axis and operation, with calls and, if `times`, seconds."""
    rank = checked(selected, run.job) or 0
    step = analysis.typical_step(run.recording) if step is None else step
    if step is None:
        return empty(f"Ledger of rank {rank}", "No step was completed, so nothing was sent.", theme)
    return ledger_figure(analysis.ledger(run.recording, run.job, step, rank), rank, theme=theme, times=times)


def communication_matrix(
    run: HasRecording, step: int | None = None, theme: Theme = "light", selected: int | None = None
) -> go.Figure:
    """Bytes from each rank to each rank in one step; selected: whose row and column are framed."""
    checked(selected, run.job)
    step = analysis.typical_step(run.recording) if step is None else step
    if step is None:
        return empty("Who sends to whom", "No step was completed, so nothing was sent.", theme)
    if run.recording.stands_for:
        return links_figure(
            analysis.bytes_between(run.recording, step), run.recording.stands_for, theme=theme, selected=selected
        )
    sent = analysis.communication_matrix(run.recording, step, run.job.world_size)
    return matrix_figure(sent, theme=theme, selected=selected)


def verdict(run: HasRecording, theme: Theme = "light") -> go.Figure:
    """How far loss, gradient norm and weights are from one process, step by step, against what is allowed."""
    found: Distances | None = getattr(run, "distances", None)
    return microscope_figure(found, verdict_of(run.summary["parity"]), theme=theme)


def bubble(
    run: HasRecording, step: int | None = None, theme: Theme = "light", selected: int | None = None
) -> go.Figure:
    """Where each rank's time went."""
    checked(selected, run.job)
    return bubble_figure(run.recording, run.job, step=step, theme=theme, selected=selected)
