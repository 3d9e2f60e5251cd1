"""Where the memory of each rank went: peaks by category beside the predicted ones, and over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from engine.recording.tables import CATEGORIES, CATEGORY_WORDS
from lab.analysis.memory import KEY
from lab.views.figures.style.palette import Palette, Theme, empty, figure, palette
from lab.views.figures.style.selected_rank import outline, pointed
from lab.wording import nbytes, unit

HATCHED = ("predicted", "by the formula")
Floats = NDArray[np.float64]


def category_colours(p: Palette) -> dict[str, str]:
    """Category of the memory ledger → CSS colour."""
    return dict(zip(CATEGORIES, (p.blue, p.orange, p.green, p.purple, p.brown, p.sky), strict=True))


def memory_figure(
    measured: Sequence[Mapping[str, int]],
    predicted: Sequence[Mapping[str, int]] = (),
    *,
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """Bytes by category for every rank, the measured bar left of the predicted one (hatched).

    Rows as in the summary's `memory`. Each part is the category's own peak; the diamond marks the highest
    total at any one time, which is lower where the peaks do not coincide.
    """
    if not measured:
        return empty("Memory", "No step was completed, so no memory was recorded.", theme)
    p, traces = palette(theme), []
    name_of_unit, scale = unit(max(row["total_peak"] for row in measured))
    place = {row["rank"]: i for i, row in enumerate(measured)}  # of ranks alike only one may be there
    sets = [("measured", measured, -0.21), ("predicted", predicted, 0.21)] if predicted else [("", measured, 0.0)]
    for which, rows, shift in sets:
        bottom = np.zeros(len(rows))
        x = np.array([place[row["rank"]] for row in rows]) + shift
        for name in CATEGORIES:
            values = np.array([row[KEY[name]] for row in rows], float)
            if values.any():
                traces.append(bar(name, which, x, bottom, values, scale, p))
            bottom += values
        traces.append(totals(which, x, [row["total_peak"] for row in rows], scale, p))
    fig = figure(memory_title(measured, predicted), theme, 420, traces, barmode="overlay")
    fig.update_xaxes(title_text="rank", showgrid=False, **_rank_ticks(measured, selected))
    if selected in place:
        outline(fig, theme, (place[selected] - 0.47, place[selected] + 0.47), None)
    top = max(sum(row[KEY[name]] for name in CATEGORIES) for row in (*measured, *predicted)) / scale
    return fig.update_yaxes(title_text=name_of_unit, range=[0, 1.06 * top])  # room for a diamond on the tallest bar


def _rank_ticks(rows: Sequence[Mapping[str, int]], selected: int | None) -> dict[str, list[Any]]:
    """About 16 of the ranks, with how many others each stands for, and always the selected one."""
    every, shown = max(1, len(rows) // 16), {}
    for i, row in enumerate(rows):
        name = f"{row['rank']} ×{row['stands_for']}" if row.get("stands_for", 1) > 1 else str(row["rank"])
        if row["rank"] == selected:
            shown[i] = pointed(name)
        elif i % every == 0:
            shown[i] = name
    return {"tickvals": [*shown], "ticktext": [*shown.values()]}


def bar(name: str, which: str, x: Floats, bottom: Floats, values: Floats, scale: float, p: Palette) -> go.Bar:
    """One category of every rank. which: "" or one of `HATCHED`. bottom, values: bytes; scale: bytes of a unit."""
    colour = category_colours(p)[name]
    predicted = which in HATCHED
    pattern = {"shape": "/", "fgcolor": colour, "bgcolor": p.paper, "size": 5, "solidity": 0.5}
    label = f"{CATEGORY_WORDS[name]}{f', {which}' if which else ''}"
    return go.Bar(
        x=x,
        y=values / scale,
        base=bottom / scale,
        width=0.4,
        name=CATEGORY_WORDS[name],
        legendgroup=name,
        showlegend=not predicted,
        textposition="none",
        customdata=[nbytes(v) for v in values],
        hovertemplate=f"{label}: %{{customdata}}<extra></extra>",
        marker={
            "color": colour,
            "line": {"color": colour, "width": 1},
            **({"pattern": pattern} if predicted else {}),
        },
    )


def totals(which: str, x: Floats, values: Sequence[int], scale: float, p: Palette) -> go.Scatter:
    """Each rank's highest total, which is below the sum of its bars. values: bytes; scale: bytes of a unit."""
    return go.Scatter(
        x=x,
        y=np.array(values, float) / scale,
        mode="markers",
        name="highest total at one time",
        legendgroup="total",
        showlegend=which not in HATCHED,
        customdata=[nbytes(v) for v in values],
        hovertemplate=f"highest total{f', {which}' if which else ''}: %{{customdata}}<extra></extra>",
        marker={"symbol": "diamond", "size": 9, "color": p.ink, "line": {"color": p.paper, "width": 1.5}},
    )


def memory_title(measured: Sequence[Mapping[str, int]], predicted: Sequence[Mapping[str, int]]) -> str:
    """measured, predicted: rows of `summary["memory"]`, in bytes; measured has at least one."""
    most = max(measured, key=lambda row: row["total_peak"])
    equal = sum(row.get("stands_for", 1) for row in measured if row["total_peak"] == most["total_peak"]) - 1
    others = f" (and {equal} more rank{'s' if equal > 1 else ''})" if equal else ""
    title = f"Rank {most['rank']}{others} peaks highest: {nbytes(most['total_peak'])} at one time"
    guess = {row["rank"]: row["total_peak"] for row in predicted}.get(most["rank"])
    return f"{title}; predicted {nbytes(guess)}" if guess else title
