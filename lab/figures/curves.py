"""Several quantities against one, both on logarithmic axes: what collectives cost by size, or by ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from lab.figures.palette import Theme, figure, palette

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")


def curves_figure(
    x: Sequence[float], curves: Mapping[str, Sequence[float]], *, title: str, across: str, up: str,
    theme: Theme = "light",
) -> go.Figure:  # fmt: skip
    """curves: values at each x by name, at most six. across, up: what the axes show, with units."""
    if len(curves) > len(_DASHES):
        raise ValueError(f"{len(curves)} curves are too many to be told apart: show at most {len(_DASHES)}.")
    p = palette(theme)
    colours = (p.blue, p.orange, p.green, p.purple, p.brown, p.sky)
    lines = [
        go.Scatter(
            x=list(x), y=list(values), name=name, mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2.5}, marker={"symbol": symbol, "size": 8},
            hovertemplate=f"{name}<br>%{{x:.3s}} {across.split(',')[0]}: %{{y:.3s}}<extra></extra>",
        )
        for (name, values), colour, dash, symbol in zip(curves.items(), colours, _DASHES, _SYMBOLS, strict=False)
    ]  # fmt: skip
    fig = figure(title, theme, 380, lines)
    fig.update_xaxes(type="log", title_text=across, dtick=1, tickformat="~s")
    return fig.update_yaxes(type="log", title_text=up, dtick=1, tickformat="~s")
