"""How a chosen rank is marked in every figure: a pointed, bold name and an outline, so never by colour alone."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from engine.job.job import Job
from lab.views.figures.style.palette import Theme, palette

MARK = "▸"


def checked(selected: int | None, job: Job) -> int | None:
    """`selected`, if it is a rank of the job. Raises `ValueError`."""
    if selected is not None and not 0 <= selected < job.world_size:
        raise ValueError(f"selected={selected} is not a rank of this job: use 0 to {job.world_size - 1}.")
    return selected


def recorded(selected: int | None, stands_for: Mapping[int, int]) -> int | None:
    """The rank whose rows are those of `selected` too."""
    return None if selected is None else stands_for.get(selected, selected)


def pointed(name: str) -> str:
    """The name of a chosen rank."""
    return f"<b>{MARK} {name}</b>"


def outline(fig: go.Figure, theme: Theme, x: tuple[float, float] | None, y: tuple[float, float] | None) -> None:
    """A frame around part of a figure; None: all along that axis."""
    across = {"xref": "x domain", "x0": 0, "x1": 1} if x is None else {"xref": "x", "x0": x[0], "x1": x[1]}
    along = {"yref": "y domain", "y0": 0, "y1": 1} if y is None else {"yref": "y", "y0": y[0], "y1": y[1]}
    line = {"color": palette(theme).ink, "width": 2.5}
    fig.add_shape(type="rect", layer="above", line=line, fillcolor="rgba(0,0,0,0)", **across, **along)
