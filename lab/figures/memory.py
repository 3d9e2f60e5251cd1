"""Where the memory of each rank went: peaks by category beside the predicted ones, and over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from engine.recording import CATEGORIES, Recording
from lab.analysis.memory import KEY, memory_over_time
from lab.figures.chosen import outline, pointed
from lab.figures.clock import time_axis
from lab.figures.palette import Palette, Theme, empty, figure, palette
from lab.wording import nbytes, seconds, unit

_MEANING = {
    "params": "parameters",
    "grads": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
    "gathered": "gathered parameters",
    "buffers": "buffers",
}
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
_MOST_POINTS = 4000


def _colours(p: Palette) -> dict[str, str]:
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
                traces.append(_bar(name, which, x, bottom, values, scale, p))
            bottom += values
        traces.append(_totals(which, x, [row["total_peak"] for row in rows], scale, p))
    fig = figure(memory_title(measured, predicted), theme, 420, traces, barmode="overlay")
    fig.update_xaxes(title_text="rank", showgrid=False, **_rank_ticks(measured, selected))
    if selected in place:
        outline(fig, theme, (place[selected] - 0.47, place[selected] + 0.47), None)
    return fig.update_yaxes(title_text=name_of_unit, rangemode="tozero")


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


def _bar(name: str, which: str, x: Floats, bottom: Floats, values: Floats, scale: float, p: Palette) -> go.Bar:
    colour = _colours(p)[name]
    predicted = which == "predicted"
    pattern = {"shape": "/", "fgcolor": colour, "bgcolor": p.paper, "size": 5, "solidity": 0.5}
    label = f"{_MEANING[name]}{f', {which}' if which else ''}"
    return go.Bar(
        x=x,
        y=values / scale,
        base=bottom / scale,
        width=0.4,
        name=_MEANING[name],
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


def _totals(which: str, x: Floats, totals: Sequence[int], scale: float, p: Palette) -> go.Scatter:
    return go.Scatter(
        x=x,
        y=np.array(totals, float) / scale,
        mode="markers",
        name="highest total at one time",
        legendgroup="total",
        showlegend=which != "predicted",
        customdata=[nbytes(v) for v in totals],
        hovertemplate=f"highest total{f', {which}' if which else ''}: %{{customdata}}<extra></extra>",
        marker={"symbol": "diamond", "size": 9, "color": p.ink, "line": {"color": p.paper, "width": 1.5}},
    )


def memory_title(measured: Sequence[Mapping[str, int]], predicted: Sequence[Mapping[str, int]]) -> str:
    most = max(measured, key=lambda row: row["total_peak"])
    equal = sum(row.get("stands_for", 1) for row in measured if row["total_peak"] == most["total_peak"]) - 1
    others = f" (and {equal} more rank{'s' if equal > 1 else ''})" if equal else ""
    title = f"Rank {most['rank']}{others} peaks highest: {nbytes(most['total_peak'])} at one time"
    guess = {row["rank"]: row["total_peak"] for row in predicted}.get(most["rank"])
    return f"{title}; predicted {nbytes(guess)}" if guess else title


def memory_over_time_figure(
    recording: Recording, rank: int, *, window: tuple[int, int] | None = None, theme: Theme = "light"
) -> go.Figure:
    """Bytes held by a rank over time, stacked by category, within `window` (ns) or from the first step on."""
    time, held = memory_over_time(recording, rank)
    if not len(time):
        return empty("Memory over time", "No step was completed, so no memory was recorded.", theme)
    start, end = window or _steps_window(recording, rank, time)
    time, held = _cut(time, held, start, end)
    p = palette(theme)
    name_of_unit, scale = unit(held.sum(axis=0).max())
    traces = [
        go.Scatter(
            x=(time - start) / 1e6, y=held[i] / scale, name=_MEANING[name], stackgroup="all", mode="lines",
            line={"shape": "hv", "width": 0.5, "color": _colours(p)[name]}, fillcolor=_colours(p)[name],
            customdata=[nbytes(v) for v in held[i]], hovertemplate="%{customdata}",
        )
        for i, name in enumerate(CATEGORIES)
        if held[i].any()
    ]  # fmt: skip
    total = held.sum(axis=0)
    at = int(total.argmax())
    title = f"Rank {rank} holds {nbytes(total[at])} at most, {seconds((time[at] - start) / 1e9)} in"
    fig = figure(title, theme, 360, traces, hovermode="x unified")
    fig.add_annotation(
        x=(time[at] - start) / 1e6, y=total[at] / scale, text=f"peak {nbytes(total[at])}", ay=-24, ax=0,
        arrowcolor=p.ink, font={"color": p.ink}, bgcolor=p.paper,
    )  # fmt: skip
    length = (end - start) / 1e6
    fig.update_xaxes(range=[0, length], **time_axis(length))
    return fig.update_yaxes(title_text=name_of_unit, range=[0, total[at] / scale * 1.3])


def _steps_window(recording: Recording, rank: int, time: Ints) -> tuple[int, int]:
    """From the rank's first row of step 0 on; set-up before it takes far longer and shows nothing."""
    table = recording.memory
    mine = (table["rank"].to_numpy() == rank) & (table["step"].to_numpy() >= 0)
    steps = table["time_ns"].to_numpy()[mine]
    return (int(steps.min()) if len(steps) else int(time[0])), int(time[-1])


def _cut(time: Ints, held: Ints, start: int, end: int) -> tuple[Ints, Ints]:
    """The rows within [start, end], what was held at its start first; thinned out if there are too many."""
    first = max(int(np.searchsorted(time, start, side="right")) - 1, 0)
    last = max(int(np.searchsorted(time, end, side="right")), first + 1)
    time, held = time[first:last].copy(), held[:, first:last]
    time[0] = max(time[0], start)
    time, held = np.append(time, end), np.append(held, held[:, -1:], axis=1)
    if len(time) <= _MOST_POINTS:
        return time, held
    # of each stretch keep the instant with most bytes, so that no peak is lost
    edges = np.linspace(0, len(time), _MOST_POINTS + 1).astype(int)
    kept = [a + int(held[:, a:b].sum(axis=0).argmax()) for a, b in pairwise(edges)]
    return time[kept], held[:, kept]
