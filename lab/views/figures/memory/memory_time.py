"""Bytes that ranks hold over time, one rank or several below each other on the same axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from engine.recording.tables import CATEGORIES, CATEGORY_WORDS, Recording
from lab.analysis.memory import memory_over_time
from lab.views.figures.memory.memory import category_colours
from lab.views.figures.style.clock import time_axis
from lab.views.figures.style.palette import Palette, Theme, empty, figure, palette
from lab.wording import nbytes, seconds, unit

Ints = NDArray[np.int64]
_MOST_POINTS = 4000
MOST_PANELS = 8


@dataclass(frozen=True)
class Panel:
    """One picture: a recorded rank, within `window` (ns) or from the first step on. expected: its predicted peak."""

    name: str
    recording: Recording
    rank: int
    window: tuple[int, int] | None = None
    expected: int | None = None


@dataclass(frozen=True)
class _Held:
    """What a panel draws: ms from its start, and bytes[category, time]."""

    panel: Panel
    time: NDArray[np.float64]
    held: Ints

    @property
    def total(self) -> Ints:
        return np.asarray(self.held.sum(axis=0), np.int64)


def memory_over_time_figure(
    recording: Recording,
    rank: int,
    *,
    window: tuple[int, int] | None = None,
    theme: Theme = "light",
    expected: int | None = None,
) -> go.Figure:
    """Bytes held by a rank over time, stacked by category, within `window` (ns) or from the first step on."""
    return memory_panels([Panel(f"Rank {rank}", recording, rank, window, expected)], theme=theme)


def memory_panels(panels: Sequence[Panel], *, theme: Theme = "light") -> go.Figure:
    """The panels below each other, with one scale of bytes and one of time, each from its own start on."""
    found = [one for panel in panels[:MOST_PANELS] if (one := _held(panel)) is not None]
    if not found:
        return empty("Memory over time", "No step was completed, so no memory was recorded.", theme)
    p, length = palette(theme), max(float(one.time[-1]) for one in found)
    most = max(max(int(one.total.max()), one.panel.expected or 0) for one in found)
    name_of_unit, scale = unit(most)
    shown: set[str] = set()
    traces = [trace for i, one in enumerate(found) for trace in _areas(one, i, scale, p, shown)]
    height = 360 if len(found) == 1 else 120 + 170 * len(found)
    fig = figure(_title(found), theme, height, traces, hovermode="x unified")
    for i, one in enumerate(found):
        _annotate(fig, one, i, scale, p, several=len(found) > 1)
        top, share = 1 - i / len(found), 1 / len(found)
        fig.layout[f"yaxis{i + 1 if i else ''}"] = {
            "title": {"text": name_of_unit}, "range": [0, most / scale * 1.3], "anchor": "x",
            "domain": [top - share, top - (0.13 * share if len(found) > 1 else 0)],
        }  # fmt: skip
    return fig.update_xaxes(range=[0, length], anchor=f"y{len(found) if len(found) > 1 else ''}", **time_axis(length))


def _held(panel: Panel) -> _Held | None:
    time, held = memory_over_time(panel.recording, panel.rank)
    if not len(time):
        return None
    start, end = panel.window or _steps_window(panel.recording, panel.rank, time)
    time, held = _cut(time, held, start, end)
    return _Held(panel, (time - start) / 1e6, held)


def _areas(one: _Held, number: int, scale: float, p: Palette, shown: set[str]) -> list[go.Scatter]:
    """A trace for each category that holds anything; in the legend once."""
    traces = []
    for i, name in enumerate(CATEGORIES):
        if one.held[i].any():
            colour = category_colours(p)[name]
            traces.append(
                go.Scatter(
                    x=one.time, y=one.held[i] / scale, name=CATEGORY_WORDS[name], mode="lines",
                    stackgroup=f"of {number}",
                    line={"shape": "hv", "width": 0.5, "color": colour}, fillcolor=colour, legendgroup=name,
                    showlegend=name not in shown, customdata=[nbytes(v) for v in one.held[i]],
                    hovertemplate="%{customdata}", yaxis=f"y{number + 1 if number else ''}",
                )
            )  # fmt: skip
            shown.add(name)
    return traces


def _annotate(fig: go.Figure, one: _Held, number: int, scale: float, p: Palette, several: bool) -> None:
    """The peak, the predicted one as a dashed line, and the panel's name if there are several."""
    axis, total = f"y{number + 1 if number else ''}", one.total
    at = int(total.argmax())
    fig.add_annotation(
        x=one.time[at], y=total[at] / scale, text=f"peak {nbytes(total[at])}", ay=-24, ax=0, xref="x", yref=axis,
        arrowcolor=p.ink, font={"color": p.ink}, bgcolor=p.paper,
    )  # fmt: skip
    if one.panel.expected is not None:
        line = {"color": p.ink, "width": 1.5, "dash": "dash"}
        y = one.panel.expected / scale
        fig.add_shape(type="line", x0=0, x1=1, xref="x domain", y0=y, y1=y, yref=axis, line=line)
        fig.add_annotation(
            x=1, xref="x domain", y=y, yref=axis, text=f"predicted peak {nbytes(one.panel.expected)}", showarrow=False,
            xanchor="right", yanchor="bottom", font={"color": p.ink, "size": 11},
        )  # fmt: skip
    if several:
        where = {"x": 0, "xref": "x domain", "y": 1.0, "yref": f"{axis} domain", "xanchor": "left", "yanchor": "bottom"}
        fig.add_annotation(text=f"<b>{one.panel.name}</b>", showarrow=False, font={"color": p.ink}, **where)


def _title(found: Sequence[_Held]) -> str:
    most = max(found, key=lambda one: int(one.total.max()))
    peak = int(most.total.max())
    if len(found) == 1:
        at = float(most.time[int(most.total.argmax())])
        return f"{most.panel.name} holds {nbytes(peak)} at most, {seconds(at / 1e3)} in"
    least = min(found, key=lambda one: int(one.total.max()))
    return f"{most.panel.name} peaks highest, {nbytes(peak)}; {least.panel.name} lowest, {nbytes(least.total.max())}"


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
