"""Where each rank's time went: computing, communicating, and each cause of standing idle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from engine.job.job import Job
from engine.prediction.replay.rows import StepRows
from engine.recording.tables import Recording
from lab.analysis.step.idle import CAUSES
from lab.analysis.step.step_ops import step_ops, typical_step, window_of
from lab.analysis.step.time_shares import time_shares
from lab.views.figures.style.palette import Palette, Theme, empty, figure, palette
from lab.views.figures.style.selected_rank import outline, pointed, recorded
from lab.wording import percent, seconds

NAMES = {
    "computing": "computing",
    "core": "busy, but waiting for a core",
    "layer": "collectives inside layers",
    "dependency": "idle: waits for another rank to compute",
    "straggler": "idle: waits for a rank to join a collective",
    "transfer": "idle: waits for bytes on their way",
    "host": "idle: Python, or no free core",
    "done": "idle: nothing left to do",
}

_MOST_NAMED = 40


def bubble_figure(
    recording: Recording,
    job: Job,
    *,
    step: int | None = None,
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """One bar a rank, as shares of the step's time."""
    step = typical_step(recording) if step is None else step
    if step is None:
        return empty("Where the time went", "No step was completed.", theme)
    shares = time_shares(recording, step)
    ops = step_ops(recording, step)
    start, end = window_of(ops)
    whole = (end - start) / 1e9 or 1.0
    ranks = sorted(shares)
    traces = [
        _bars(name, ops.rank_names, [shares[rank][name] for rank in ranks], whole, palette(theme))
        for name in NAMES
        if any(row[name] for row in shares.values())
    ]
    height = 150 + 26 * min(len(ranks), 40)
    fig = figure(shares_title(shares, ops.weight), theme, height, traces, barmode="stack", legend_traceorder="normal")
    fig.update_xaxes(
        tickformat=".0%",
        tickvals=[0, 0.25, 0.5, 0.75, 1],
        range=[0, 1.02],  # the last label would be cut
        title_text=f"share of step {step} ({seconds(whole)})",
    )
    mine = recorded(selected, recording.stands_for)
    if mine in ranks:
        outline(fig, theme, None, (ranks.index(mine) - 0.46, ranks.index(mine) + 0.46))
    names = _labels(ops, mine)
    return fig.update_yaxes(autorange="reversed", tickvals=[*range(len(ranks))], ticktext=names, showgrid=False)


def _labels(ops: StepRows, selected: int | None) -> list[str]:
    """Of many ranks the bare numbers."""
    few = len(ops.ranks) <= _MOST_NAMED
    names = {rank: name if few else name.removeprefix("rank ") for rank, name in ops.rank_names.items()}
    return [pointed(name) if rank == selected else name for rank, name in names.items()]


def _bars(name: str, ranks: Mapping[int, str], values: list[float], whole: float, p: Palette) -> go.Bar:
    """One kind of time on every rank."""
    return go.Bar(
        orientation="h", y=[*range(len(ranks))], x=[v / whole for v in values], name=NAMES[name], width=0.8,
        textposition="none",
        customdata=[f"{rank}, {NAMES[name]}: {seconds(v)}" for rank, v in zip(ranks.values(), values, strict=True)],
        hovertemplate="%{customdata}, %{x:.1%}<extra></extra>",
        marker=marker_of(name, p),
    )  # fmt: skip


def marker_of(name: str, p: Palette) -> dict[str, Any]:
    """How a kind of time is drawn; idle kinds differ by pattern as well as by colour."""
    colour, shape = {
        "computing": (p.blue, ""),
        "core": (p.blue, "|"),
        "layer": (p.purple, ""),
        "dependency": (p.idle, "/"),
        "straggler": (p.orange, "\\"),
        "transfer": (p.sky, "x"),
        "host": (p.brown, "."),
        "done": (p.idle, "-"),
    }[name]
    pattern = {"shape": shape, "fgcolor": colour, "bgcolor": p.paper, "size": 7, "solidity": 0.35}
    return {"color": colour, "line": {"color": colour, "width": 0.5}, "pattern": pattern}


def shares_title(shares: Mapping[int, Mapping[str, float]], count: Mapping[int, int] | None = None) -> str:
    """Shares of all ranks' time together, and the main cause of idling. count: how many ranks each one stands for."""
    many = count or {}
    total = {name: sum(row[name] * many.get(rank, 1) for rank, row in shares.items()) for name in NAMES}
    whole = sum(total.values()) or 1.0
    cause = max(CAUSES, key=lambda c: total[c])
    idle = sum(total[c] for c in CAUSES) / whole
    core = f"waiting for a core {percent(total['core'] / whole)}, " if total["core"] else ""
    layers = f"collectives inside layers {percent(total['layer'] / whole)}, " if total["layer"] else ""
    main = f" (largest part, {percent(total[cause] / whole)}: {NAMES[cause].removeprefix('idle: ')})" if idle else ""
    return f"Computing {percent(total['computing'] / whole)}, {core}{layers}idle {percent(idle)}{main}"
