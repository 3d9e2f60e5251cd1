"""Bytes that several runs send on each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from lab.views.figures.style.palette import Theme, empty, figure, palette
from lab.views.figures.style.run_styles import letter, run_looks
from lab.wording import axis_name, axis_order, nbytes


def communication_compared_figure(
    sent: Sequence[Mapping[str, int]], names: Sequence[str], *, theme: Theme = "light"
) -> go.Figure:
    """For each axis a bar of each run. sent: of each run, bytes by axis that the axis's first rank sends in a step."""
    axes = [axis for axis in axis_order() if any(one.get(axis) for one in sent)]
    if not axes:
        return empty("Bytes sent", "Nothing was sent: every plan here has one rank.", theme)
    p = palette(theme)
    traces = [
        go.Bar(
            orientation="h", y=[axis_name(axis) for axis in axes], x=[one.get(axis, 0) for axis in axes],
            name=f"{look.sign} {name}", marker={"color": look.colour}, textposition="outside", cliponaxis=False,
            text=[f"{look.sign} {letter(name)} {_words(one.get(axis, 0))}" for axis in axes],
            textfont={"color": p.ink, "size": 11}, hovertemplate=f"%{{y}} axis, {name}: %{{x:.3s}}B<extra></extra>",
        )
        for one, name, look in zip(sent, names, run_looks(len(sent), theme), strict=True)
    ]  # fmt: skip
    height = 130 + len(axes) * (24 + 22 * len(sent)) + 22 * len(sent)
    fig = figure(_title(sent, names), theme, height, traces, barmode="group", bargap=0.22)
    fig.update_layout(legend_traceorder="normal")
    most = max(one.get(axis, 0) for one in sent for axis in axes)
    fig.update_xaxes(title_text="bytes a rank sends in a step,<br>by the algorithm", tickformat="~s", ticksuffix="B")
    fig.update_xaxes(range=[0, 1.35 * most])
    return fig.update_yaxes(autorange="reversed", showgrid=False)


def _words(value: int) -> str:
    return nbytes(value) if value else "nothing"


def _title(sent: Sequence[Mapping[str, int]], names: Sequence[str]) -> str:
    totals = [sum(one.values()) for one in sent]
    low, high = totals.index(min(totals)), totals.index(max(totals))
    if totals[low] == totals[high]:
        return f"All send {nbytes(totals[0])} a rank and step"
    if not totals[low]:
        return f"{letter(names[low])} sends nothing; {letter(names[high])} {nbytes(totals[high])} a rank and step"
    return (
        f"{letter(names[high])} sends most, {nbytes(totals[high])} a rank and step:"
        f" {totals[high] / totals[low]:.3g}× as much as {letter(names[low])}"
    )
