"""What each ZeRO stage saves of a rank's model state as replicas are added."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import plotly.graph_objects as go

from engine.job.job import Job
from engine.job.precision import Precision
from engine.prediction.formulas import parameters
from lab.views.figures.style.palette import Theme, figure, palette

REPLICAS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_DASHES = {1: "dot", 2: "dash", 3: "solid"}

Point = tuple[int, int, float]
"""ZeRO stage, replicas, saved share of a rank's model state."""


class HasSummary(Protocol):
    """What these figures need of a run."""

    @property
    def job(self) -> Job: ...
    @property
    def summary(self) -> dict[str, Any]: ...


def zero_savings(runs: Sequence[HasSummary], claims: Sequence[float] = (), theme: Theme = "light") -> go.Figure:
    """What each ZeRO stage saves of a rank's model state as replicas are added, with `runs` of one precision on it."""
    for run in runs:
        if run.job.world_size > run.job.plan.dp:
            raise ValueError("what ZeRO saves is told of runs with tp=1 and pp=1: others split the model as well.")
    points = [(run.job.plan.zero, run.job.plan.dp, 1 - _state(run) / run.job.precision.state) for run in runs]
    return savings_figure(runs[0].job.precision, points, claims, theme=theme)


def _state(run: HasSummary) -> float:
    """Bytes of model state for each parameter of the model, on the first rank."""
    held = run.summary["memory"]["per_rank"][0]
    return float((held["params"] + held["grads"] + held["optimizer"]) / parameters(run.job))


def saved_share(zero: int, replicas: int, precision: Precision) -> float:
    """Share of a rank's parameters, gradients and optimizer state that a ZeRO stage saves.

    Stage 1 shards the optimizer's state, 2 also gradients, 3 also parameters; of what is sharded 1/N stays
    (Rajbhandari et al. 2020, figure 1).
    """
    parts = (precision.compute, precision.grad, precision.optimizer)
    return sum(parts[3 - zero :]) / precision.state * (1 - 1 / replicas)


def savings_figure(
    precision: Precision, points: Sequence[Point] = (), claims: Sequence[float] = (), *, theme: Theme = "light"
) -> go.Figure:
    """What each ZeRO stage saves of a rank's model state against the number of replicas.

    points: runs, marked on the lines. claims: shares to draw across, to see which line meets them where.
    """
    p = palette(theme)
    colours = {1: p.green, 2: p.orange, 3: p.blue}
    traces = [
        go.Scatter(
            x=REPLICAS, y=[saved_share(zero, n, precision) for n in REPLICAS], name=f"ZeRO-{zero}", mode="lines",
            line={"dash": dash, "color": colours[zero], "width": 2.5}, hovertemplate="N = %{x}: %{y:.1%}",
        )
        for zero, dash in _DASHES.items()
    ]  # fmt: skip
    if points:
        stages, at, saved = np.array(points).T
        words = [f"ZeRO-{zero:.0f}" for zero in stages]
        traces.append(
            go.Scatter(
                x=at, y=saved, mode="markers", name="runs", customdata=words,
                hovertemplate="%{customdata}, N = %{x}: %{y:.2%}<extra></extra>",
                marker={"size": 10, "color": p.ink, "line": {"color": p.paper, "width": 1.5}},
            )
        )  # fmt: skip
    limits = [f"{100 * saved_share(zero, sys.maxsize, precision):g} %" for zero in (1, 2)]
    title = f"ZeRO-1 never saves more than {limits[0]}, ZeRO-2 never more than {limits[1]}"
    fig = figure(title, theme, 380, traces)
    for claim in claims:
        fig.add_hline(y=claim, line={"color": p.faint, "dash": "dot", "width": 1}, annotation_text=f"{claim:.1%}")
    fig.update_annotations(font_color=p.ink, xanchor="left", x=0)
    fig.update_xaxes(title_text="replicas N", type="log", tickvals=[*REPLICAS], showgrid=False)
    return fig.update_yaxes(title_text="saved of a rank's model state", tickformat=".0%", range=[0, 1.05])
