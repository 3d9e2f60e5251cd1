"""The microscope behind a verdict: loss, gradient norm and weights by step, how far from one process, on a log axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from lab.verdict import QUANTITIES, Distances, Trace, Verdict, shown_traces
from lab.views.figures.style.palette import Palette, Theme, empty, figure, palette

LEAST = 1e-9
"""Differences smaller than this, and none at all, are drawn here: a log axis has no zero."""
MOST = 1e2
"""What is no number is drawn here."""
_NO_PANELS = "How far this run was from one process was not kept, step by step."
_PANELS = ((0.70, 0.95), (0.35, 0.60), (0.0, 0.25))


def microscope_figure(found: Distances | None, verdict: Verdict, *, theme: Theme = "light") -> go.Figure:
    """Three panels, one a quantity; of the weights, the parameter that comes closest to its limit.

    In each: the run, the rounding floor and the limit, of which nothing may lie above. found: None draws a sentence.
    """
    if found is None:
        return empty(verdict.badge.title, _NO_PANELS, theme)
    p, shown = palette(theme), shown_traces(found)
    lines = [line for i, trace in enumerate(shown) for line in _lines(trace, i, p)]
    for line in [line for line in lines if line.legendgroup == "beyond"][:1]:
        line.showlegend = True
    fig = figure(_title(verdict), theme, 560, lines)
    low, high = _range(shown)
    for i, trace in enumerate(shown):
        suffix = str(i + 1) if i else ""
        axis = {
            "type": "log", "range": [math.log10(low), math.log10(high)], "dtick": 2, "exponentformat": "power",
            "domain": _PANELS[i], "title": {"text": "Δ, relative", "font": {"size": 11}}, "anchor": f"x{suffix}",
        }  # fmt: skip
        steps = {"anchor": f"y{suffix}", "matches": None if not i else "x", "showticklabels": i == len(shown) - 1,
                 "dtick": 1 if len(trace.steps) <= 12 else None, "tickformat": "d"}  # fmt: skip
        fig.update_layout({f"yaxis{suffix}": axis, f"xaxis{suffix}": steps})
        fig.add_annotation(
            text=_name(trace), x=0, xref="paper", xanchor="left", y=_PANELS[i][1], yref="paper",
            yanchor="bottom", showarrow=False, font={"size": 12, "color": p.ink},
        )  # fmt: skip
    fig.update_layout(legend={"y": -0.12, "yanchor": "top"})
    fig.update_layout({f"xaxis{len(shown) if len(shown) > 1 else ''}": {"title": {"text": "step"}}})
    return fig


def _title(verdict: Verdict) -> str:
    words = verdict.badge.title
    return f"{words}; {verdict.microscope}" if verdict.microscope else words


def _name(trace: Trace) -> str:
    words = QUANTITIES[trace.quantity]
    if not trace.ranks:
        return f"<b>{words}</b>"
    left = trace.first_beyond() is not None
    return f"<b>{words}</b>: {trace.unit} {trace.tensor}, {'furthest beyond' if left else 'closest to'} limit"


def _range(shown: Sequence[Trace]) -> tuple[float, float]:
    """One for all panels, so that they can be compared."""
    values = [_drawn(value) for trace in shown for value in (*trace.off_by, *trace.limit, *_known(trace))]
    return min(LEAST, *values) / 2, max(values) * 3


def _known(trace: Trace) -> Iterator[float]:
    yield from (value for value in trace.floor if value is not None)


def _drawn(value: float) -> float:
    return MOST if not math.isfinite(value) else min(max(value, LEAST), MOST)


def _lines(trace: Trace, i: int, p: Palette) -> Iterator[go.Scatter]:
    axes = {"xaxis": f"x{i + 1 if i else ''}", "yaxis": f"y{i + 1 if i else ''}", "showlegend": not i}
    yield go.Scatter(
        x=trace.steps, y=list(map(_drawn, trace.limit)), name="allowed", legendgroup="allowed", mode="lines",
        line={"color": p.orange, "width": 2, "dash": "dash"},
        hovertemplate="allowed in step %{x}: %{y:.1e}<extra></extra>", **axes,
    )  # fmt: skip
    if any(value is not None for value in trace.floor):
        yield go.Scatter(
            x=trace.steps, y=[None if value is None else _drawn(value) for value in trace.floor],
            name="rounding floor, the most until then", legendgroup="floor", mode="lines",
            line={"color": p.faint, "width": 2, "dash": "dot"},
            hovertemplate="floor in step %{x}: %{y:.1e}<extra></extra>", **axes,
        )  # fmt: skip
    ranks = [f", rank {rank}" for rank in trace.ranks] or [""] * len(trace.steps)
    told = [f"{value:.1e}{rank}" for value, rank in zip(trace.off_by, ranks, strict=True)]
    yield go.Scatter(
        x=trace.steps, y=list(map(_drawn, trace.off_by)), name="this run", legendgroup="run",
        mode="lines+markers" if len(trace.steps) <= 60 else "lines", customdata=told,
        line={"color": p.blue, "width": 2.5}, marker={"size": 6},
        hovertemplate="this run in step %{x}: %{customdata}<extra></extra>", **axes,
    )  # fmt: skip
    left = [at for at in range(len(trace.steps)) if not trace.off_by[at] <= trace.limit[at]]
    if left:
        yield go.Scatter(
            x=[trace.steps[at] for at in left], y=[_drawn(trace.off_by[at]) for at in left],
            name="beyond what is allowed, or no number", legendgroup="beyond", mode="markers", hoverinfo="skip",
            marker={"symbol": "x-thin-open", "size": 11, "color": p.orange, "line": {"width": 2.5}},
            **axes | {"showlegend": False},
        )  # fmt: skip
