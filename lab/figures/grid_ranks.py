"""The ranks of the grid as balls: coloured on a scale by a number, or by kind with a symbol for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from engine.mesh import Mesh
from lab.figures.chosen import pointed
from lab.figures.palette import Palette

MOST_LABELS = 16
MOST_NUMBERS = 128
"""With more ranks than these their numbers cover each other; they are still told when pointed at."""


@dataclass(frozen=True)
class Kind:
    """A kind of ball, as the legend has it. hollow: drawn as an outline, as idle is."""

    name: str
    colour: str
    symbol: str
    hollow: bool = False


@dataclass(frozen=True)
class Ball:
    """One rank. label: beside its number where there is room; words: when pointed at. value: its place on a scale."""

    rank: int
    label: str
    words: str
    kind: str = ""
    value: float = 0.0


def by_value(mesh: Mesh, balls: Sequence[Ball], bar: Mapping[str, object] | None, p: Palette) -> go.Scatter3d:
    """All ranks on one scale, from 0 on; bar: the scale's settings, None to leave it out."""
    most = max(ball.value for ball in balls) or 1
    scale = {"color": [ball.value for ball in balls], "colorscale": "Cividis", "cmin": 0, "cmax": most}
    shown = {"showscale": bar is not None, "colorbar": dict(bar or {})}
    return _balls(mesh, balls, {**scale, **shown}, p, showlegend=False)


def by_kind(mesh: Mesh, balls: Sequence[Ball], kinds: Sequence[Kind], p: Palette) -> list[go.Scatter3d]:
    """A trace for each kind that there is."""
    traces = []
    for kind in kinds:
        mine = [ball for ball in balls if ball.kind == kind.name]
        if mine:
            marker = {"color": kind.colour, "symbol": f"{kind.symbol}{'-open' if kind.hollow else ''}"}
            traces.append(_balls(mesh, mine, marker, p, name=kind.name))
    return traces


def mark(mesh: Mesh, rank: int, p: Palette) -> go.Scatter3d:
    """A large frame and a bold name for the selected rank."""
    x, y, z = place(mesh, rank)
    return go.Scatter3d(
        x=[x], y=[y], z=[z], mode="markers+text", text=[pointed(f"rank {rank}")], textposition="bottom center",
        textfont={"size": 15, "color": p.ink}, hoverinfo="skip", name=f"selected: rank {rank}", showlegend=False,
        marker={"symbol": "square-open", "size": _size(mesh) * 1.7, "color": p.ink, "line": {"width": 3}},
    )  # fmt: skip


def place(mesh: Mesh, rank: int) -> tuple[int, int, int]:
    at = mesh.coordinate(rank)
    return at.dp, at.tp, at.pp


def _size(mesh: Mesh) -> int:
    return 14 if mesh.size <= MOST_LABELS else 8 if mesh.size <= MOST_NUMBERS else 4


def _balls(
    mesh: Mesh, balls: Sequence[Ball], marker: Mapping[str, object], p: Palette, **options: object
) -> go.Scatter3d:
    x, y, z = zip(*(place(mesh, ball.rank) for ball in balls), strict=True)
    few, named = mesh.size <= MOST_LABELS, mesh.size <= MOST_NUMBERS
    text = [f"{b.rank}: {b.label}" if few and b.label else str(b.rank) for b in balls]
    line = {"color": p.ink, "width": int(named)}
    return go.Scatter3d(
        x=x, y=y, z=z, mode="markers+text" if named else "markers", text=text, textposition="top center",
        textfont={"size": 12 if few else 10, "color": p.ink}, customdata=[b.words for b in balls],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"size": _size(mesh), "opacity": 1, "line": line, **marker}, **options,
    )  # fmt: skip
