"""Figures of a run that goes on. Pure functions of a snapshot."""

from __future__ import annotations

import math

import numpy as np
import plotly.graph_objects as go

from engine.recording.tables import CATEGORIES, CATEGORY_WORDS
from lab.live import TOTAL, Snapshot
from lab.views.figures.memory.memory import category_colours
from lab.views.figures.style.palette import Theme, figure, palette
from lab.wording import loss_words, nbytes, unit

MOST_POINTS = 1000
"""Of a curve; a long one is thinned evenly, its newest point kept."""


def memory_now_figure(now: Snapshot, theme: Theme) -> go.Figure:
    """Bytes of each rank by category at the end of the newest step, with the most it ever held."""
    p, ranks = palette(theme), sorted(now.memory_now)
    peaks = np.array([now.memory_peak[rank][TOTAL] for rank in ranks], float)
    name_of_unit, scale = unit(peaks.max(initial=1.0))
    traces: list[go.Bar | go.Scatter] = []
    for category in CATEGORIES:
        held = np.array([now.memory_now[rank].get(category, 0) for rank in ranks], float)
        if held.any():
            name = CATEGORY_WORDS[category]
            words = [f"rank {rank}: {name} {nbytes(size)}" for rank, size in zip(ranks, held, strict=True)]
            traces.append(
                go.Bar(
                    y=[f"rank {rank}" for rank in ranks],
                    x=held / scale,
                    name=name,
                    orientation="h",
                    marker_color=category_colours(p)[category],
                    customdata=words,
                    hovertemplate="%{customdata}<extra></extra>",
                )
            )
    marks = go.Scatter(
        y=[f"rank {rank}" for rank in ranks],
        x=peaks / scale,
        mode="markers",
        name="peak",
        marker={"symbol": "diamond", "size": 9, "color": p.ink},
        customdata=[f"peak {nbytes(peak)}" for peak in peaks],
        hovertemplate="%{customdata}<extra></extra>",
    )
    title = f"The fullest rank has held {nbytes(peaks.max(initial=0.0))} at most"
    fig = figure(title, theme, 120 + 28 * len(ranks), [*traces, marks], barmode="stack", legend_traceorder="normal")
    fig.update_yaxes(autorange="reversed", showgrid=False)
    return fig.update_xaxes(title_text=name_of_unit, rangemode="tozero")


def losses_figure(now: Snapshot, theme: Theme) -> go.Figure:
    """Loss of each step so far, and that of one process at the same steps where it is known."""
    p = palette(theme)
    kept = _thinned(len(now.steps))
    steps, losses = [now.steps[i].step for i in kept], [now.steps[i].loss for i in kept]
    traces = [
        go.Scatter(
            x=steps,
            y=losses,
            mode="lines+markers" if len(steps) < 40 else "lines",
            name="this run",
            line={"color": p.blue, "width": 4},
        )
    ]
    known = [(step, now.reference_losses[step]) for step in steps if step < len(now.reference_losses)]
    if known:
        traces.append(
            go.Scatter(
                x=[step for step, _ in known],
                y=[loss for _, loss in known],
                mode="lines",
                name="one process",
                line={"color": p.ink, "width": 2, "dash": "dash"},
            )
        )
    fig = figure(_loss_title(now), theme, 320, traces)
    fig.update_xaxes(title_text="step", tickformat="d", dtick=1 if len(steps) <= 12 else None)
    return fig.update_yaxes(title_text="loss, nats")


def _loss_title(now: Snapshot) -> str:
    last = now.steps[-1]
    words = f"Loss {loss_words(last.loss)} after {len(now.steps):,} step{'s' * (len(now.steps) > 1)}"
    if last.step < len(now.reference_losses) and math.isfinite(last.loss - now.reference_losses[last.step]):
        off = abs(last.loss / now.reference_losses[last.step] - 1)
        return f"{words}, {off:.1e} relative from one process"
    return words


def _thinned(count: int) -> list[int]:
    """Evenly spaced indices, the last among them."""
    if count <= MOST_POINTS:
        return list(range(count))
    return [int(i) for i in np.linspace(0, count - 1, MOST_POINTS).round()]
