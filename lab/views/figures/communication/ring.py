"""A ring all-reduce as it goes on: how much of the sum each rank holds of each piece, exchange by exchange."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from lab.views.figures.style.palette import Theme, figure, palette

_COLUMNS = 4


def ring_figure(rounds: Sequence[NDArray[np.int64]], *, theme: Theme = "light") -> go.Figure:
    """One square for the start and one after each exchange.

    rounds: arrays [rank, piece] of how many ranks' numbers are summed there; n of them is the complete sum.
    """
    n = len(rounds[0])
    rows = -(-len(rounds) // _COLUMNS)
    names = ["at the start", *(f"after exchange {k}" for k in range(1, len(rounds)))]
    p = palette(theme)
    most = n if theme == "light" else 1.3 * n  # so that white words stand out on the brightest cells
    whole = make_subplots(rows, _COLUMNS, subplot_titles=names, horizontal_spacing=0.04, vertical_spacing=0.2)
    for k, held in enumerate(rounds):
        whole.add_trace(_square(held, n, [p.paper, p.blue], most), k // _COLUMNS + 1, k % _COLUMNS + 1)
    done = next(k for k, held in enumerate(rounds) if (held == n).any(axis=1).all())
    exchanges = "1 exchange" if done == 1 else f"{done} exchanges"
    title = f"A complete piece on every rank after {exchanges}, all pieces after {len(rounds) - 1}"
    look = figure(title, theme, 60 + 200 * rows, []).layout
    whole.update_layout(
        template=look.template, height=look.height, title_text=title, uirevision="keep", margin={"t": 28}
    )
    whole.update_annotations(font={"size": 12, "color": p.ink})
    whole.update_xaxes(showgrid=False, tickvals=list(range(n)), title={"text": "piece", "standoff": 0})
    whole.update_yaxes(showgrid=False, autorange="reversed", tickvals=list(range(n)), ticktext=[""] * n)
    return whole.update_yaxes(ticktext=[f"rank {rank}" for rank in range(n)], col=1)


def _square(held: NDArray[np.int64], n: int, scale: list[str], most: float) -> go.Heatmap:
    words = [["✔" if count == n else f"{count}/{n}" for count in row] for row in held.tolist()]
    return go.Heatmap(
        z=held, text=words, texttemplate="%{text}", textfont={"size": 11}, zmin=0, zmax=most, xgap=2, ygap=2,
        colorscale=[[0, scale[0]], [1, scale[1]]], showscale=False,
        hovertemplate="rank %{y}, piece %{x}: the sum of %{z} ranks<extra></extra>",
    )  # fmt: skip
