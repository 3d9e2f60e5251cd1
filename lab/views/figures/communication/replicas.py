"""What a replica sends of gradients in a step, as replicas are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from engine.prediction.formulas import parameters
from lab.views.figures.memory.zero import HasSummary
from lab.views.figures.style.palette import Theme, figure, palette


def all_reduce_bytes(runs: Sequence[HasSummary], theme: Theme = "light") -> go.Figure:
    """What each replica of runs with ZeRO-0 sends of gradients in a step, against the number of replicas."""
    sent = {}
    for run in runs:
        plan = run.job.plan
        if plan.dp == 1 or run.job.world_size > plan.dp or plan.zero:
            raise ValueError("what replicas send is told of runs with dp=2 or more, tp=1, pp=1 and zero=0.")
        nbytes = sum(row["logical_bytes"] for row in run.summary["communication"] if row["axis"] == "dp")
        sent[run.job.plan.dp] = nbytes / (parameters(run.job) * run.job.precision.grad)
    return all_reduce_figure(sent, theme=theme)


def all_reduce_figure(sent: Mapping[int, float], *, theme: Theme = "light") -> go.Figure:
    """sent: replicas n → bytes that each sends in a step ÷ bytes of the gradients, beside the ring's 2(n−1)/n.

    (Thakur, Rabenseifner, Gropp 2005, section 4.)
    """
    p, most = palette(theme), max(sent)
    ring = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024) if n <= 2 * most]
    traces = [
        go.Scatter(
            x=ring, y=[2 * (n - 1) / n for n in ring], mode="lines", name="formula 2(n−1)/n",
            line={"color": p.orange, "width": 2, "dash": "dash"}, hovertemplate="n = %{x}: %{y:.3f}",
        ),
        go.Scatter(
            x=[*sent], y=[*sent.values()], mode="markers", name="runs", hovertemplate="n = %{x}: %{y:.4f}",
            marker={"size": 10, "color": p.blue},
        ),
    ]  # fmt: skip
    few, many = min(sent), most
    title = f"{many // few} times the replicas, {sent[many] / sent[few]:.2f} times the bytes from each"
    fig = figure(title, theme, 340, traces)
    fig.add_hline(y=2, line={"color": p.faint, "dash": "dot"}, annotation_text="never more than 2")
    fig.update_annotations(font_color=p.ink)
    fig.update_xaxes(
        title_text="replicas n", type="log", tickvals=[n for n in ring if n & (n - 1) == 0], showgrid=False
    )
    return fig.update_yaxes(title_text="bytes each sends ÷ bytes of gradients", range=[0, 2.3])
