"""Times against sizes, both on logarithmic axes: what collectives cost by bytes, or by ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from lab.figures.palette import Theme, figure, palette

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")


def curves_figure(
    x: Sequence[float], curves: Mapping[str, Sequence[float]], *, title: str, across: str, unit: str = "",
    theme: Theme = "light",
) -> go.Figure:  # fmt: skip
    """Seconds at each x by name of the curve, at most six. across: what x is, as in "ranks"; unit: of x, as in "B".

    Raises `ValueError` for more curves than can be told apart.
    """
    if len(curves) > len(_DASHES):
        raise ValueError(f"{len(curves)} curves are too many to be told apart: show at most {len(_DASHES)}.")
    p = palette(theme)
    colours = (p.blue, p.orange, p.green, p.purple, p.brown, p.sky)
    lines = [
        go.Scatter(
            x=list(x), y=list(values), name=name, mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2.5}, marker={"symbol": symbol, "size": 8},
            hovertemplate=f"{name}<br>%{{x:.3s}}{unit} {across}: %{{y:.3s}}s<extra></extra>",
        )
        for (name, values), colour, dash, symbol in zip(curves.items(), colours, _DASHES, _SYMBOLS, strict=False)
    ]  # fmt: skip
    fig = figure(title, theme, 380, lines)
    fig.update_xaxes(type="log", title_text=across, tickvals=list(x), tickformat="~s", ticksuffix=unit)
    return fig.update_yaxes(type="log", title_text="time", dtick=1, tickformat="~s", ticksuffix="s")
