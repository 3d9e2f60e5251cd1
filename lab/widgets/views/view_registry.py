"""The views by name: which figure of `lab.views.figures` each is, how to read it, and which rank a click means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from engine.job.errors import told
from lab.facade import Run
from lab.views import figures
from lab.views.figures import how_to_read
from lab.views.figures.style.palette import Theme

Click = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """What there is to show: a run, the chosen rank, a moment of its step, and the runs made before it."""

    run: Run
    rank: int | None = None
    at_ms: float | None = None
    runs: tuple[Run, ...] = field(default=())


@dataclass(frozen=True)
class Drawing:
    """A view drawn by plotly. how: how to read it. pick: the rank that a click means, None if none."""

    draw: Callable[[Scene, Theme], go.Figure]
    how: str
    how_simulated: str = ""
    pick: Callable[[Scene, Click], int | None] = lambda scene, click: None


def _ball(scene: Scene, click: Click) -> int | None:
    """Of the grid: each ball carries its rank."""
    return int(click["id"]) if click["id"].isdecimal() else None


def _listed(scene: Scene) -> list[int]:
    """The ranks that bars are drawn for, in their order."""
    return [int(row["rank"]) for row in scene.run.summary["memory"]["per_rank"]]


def _nearest(key: str) -> Callable[[Scene, Click], int | None]:
    def pick(scene: Scene, click: Click) -> int | None:
        if isinstance(click[key], str):
            return None
        listed, at = _listed(scene), round(click[key])
        return listed[at] if 0 <= at < len(listed) else None

    return pick


def _named(scene: Scene, click: Click) -> int | None:
    """ "rank 3 (and 1 like it)" → 3."""
    words = str(click["y"]).split()
    return int(words[1]) if words[:1] == ["rank"] and words[1:2] and words[1].isdecimal() else None


DRAWINGS: dict[str, Drawing] = {
    "grid": Drawing(
        lambda s, theme: figures.grid(s.run, theme=theme, selected=s.rank),
        how_to_read.GRID,
        pick=_ball,
    ),
    "activity": Drawing(
        lambda s, theme: figures.grid(s.run, colour="activity", at_ms=s.at_ms, theme=theme, selected=s.rank),
        "What each rank does at the cursor's time. Move the cursor in the timeline.",
        pick=_ball,
    ),
    "memory": Drawing(
        lambda s, theme: figures.memory(s.run, theme=theme, selected=s.rank),
        how_to_read.MEMORY,
        how_to_read.MEMORY_SIMULATED,
        pick=_nearest("x"),
    ),
    "memory_over_time": Drawing(
        lambda s, theme: figures.memory_over_time(s.run, rank=s.rank or 0, theme=theme),
        "Bytes that one rank holds, by category, over the steps of the run.",
    ),
    "communication": Drawing(
        lambda s, theme: figures.communication(s.run, theme=theme),
        how_to_read.COMMUNICATION,
    ),
    "matrix": Drawing(
        lambda s, theme: figures.communication_matrix(s.run, theme=theme, selected=s.rank),
        how_to_read.MATRIX,
        pick=_named,
    ),
    "bubble": Drawing(
        lambda s, theme: figures.bubble(s.run, theme=theme, selected=s.rank),
        how_to_read.BUBBLE,
        pick=_nearest("y"),
    ),
    "bubble_curve": Drawing(
        lambda s, theme: figures.bubble_curve(list(s.runs), s.run.job, theme=theme),
        "The line is the schedule's formula; each mark is a run you made.",
    ),
    "shards": Drawing(
        lambda s, theme: figures.shards(s.run, theme=theme, selected=s.rank),
        how_to_read.SHARDS,
    ),
    "schedules": Drawing(
        lambda s, theme: figures.schedules(s.run.job, theme=theme),
        how_to_read.SCHEDULES,
    ),
}


def refuse_unknown(views: tuple[str, ...]) -> None:
    """Raises `ValueError` for a view that does not exist."""
    import difflib

    known = ("timeline", *DRAWINGS)
    for name in views:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the views are {', '.join(known)}."
            raise ValueError(f"there is no view called {told(name)}: {hint}")
