"""Times against sizes, both on logarithmic axes: what collectives cost by bytes, or by ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from lab.views.figures.style.palette import Theme, figure
from lab.views.figures.style.run_styles import run_looks


def curves_figure(
    x: Sequence[float], curves: Mapping[str, Sequence[float]], *, title: str, across: str, unit: str = "",
    theme: Theme = "light",
) -> go.Figure:  # fmt: skip
    """Seconds at each x by name of the curve, at most six. across: what x is, as in "ranks"; unit: of x, as in "B".

    Raises `ValueError` for more curves than can be told apart.
    """
    lines = [
        go.Scatter(
            x=list(x), y=list(values), name=name, mode="lines+markers",
            line={"color": look.colour, "dash": look.dash, "width": 2.5}, marker={"symbol": look.symbol, "size": 8},
            hovertemplate=f"{name}<br>%{{x:.3s}}{unit} {across}: %{{y:.3s}}s<extra></extra>",
        )
        for (name, values), look in zip(curves.items(), run_looks(len(curves), theme), strict=True)
    ]  # fmt: skip
    fig = figure(title, theme, 380, lines)
    fig.update_xaxes(type="log", title_text=across, tickvals=list(x), tickformat="~s", ticksuffix=unit)
    return fig.update_yaxes(type="log", title_text="time", dtick=1, tickformat="~s", ticksuffix="s")
