"""The ranks of the grid as balls: coloured on a scale by a number, or by kind with a symbol for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import plotly.graph_objects as go

from engine.job.mesh import Mesh
from lab.views.figures.style.palette import Palette
from lab.views.figures.style.selected_rank import pointed

MOST_LABELS = 16
MOST_NUMBERS = 128
MOST_KINDS = 8
"""With more ranks than these their numbers cover each other; they are still told when pointed at."""


@dataclass(frozen=True)
class BallKind:
    """A kind of ball, as the legend has it. hollow: drawn as an outline, as idle is."""

    name: str
    colour: str
    symbol: str
    hollow: bool = False

    @property
    def drawn(self) -> str:
        """The name of the symbol, as plotly has it."""
        return f"{self.symbol}-open" if self.hollow else self.symbol


@dataclass(frozen=True)
class Ball:
    """One rank. label: beside its number where there is room; words: when pointed at. value: its place on a scale."""

    rank: int
    label: str
    words: str
    kind: str = ""
    value: float = 0.0


def by_value(
    mesh: Mesh, balls: Sequence[Ball], bar: Mapping[str, object] | None, p: Palette, selected: int | None = None
) -> go.Scatter3d:
    """All ranks on one scale, from 0 on; bar: the scale's settings, None to leave it out."""
    most = max(ball.value for ball in balls) or 1
    scale = {"color": [ball.value for ball in balls], "colorscale": "Cividis", "cmin": 0, "cmax": most}
    shown = {"showscale": bar is not None, "colorbar": dict(bar or {})}
    return _balls(mesh, balls, {**scale, **shown}, p, selected, showlegend=False)


def by_kind(
    mesh: Mesh, balls: Sequence[Ball], kinds: Sequence[BallKind], p: Palette, selected: int | None = None
) -> list[go.Scatter3d]:
    """A trace for each kind that there is; more kinds than a legend can hold are drawn in one trace."""
    if len(kinds) > MOST_KINDS:
        of = {kind.name: kind for kind in kinds}
        looks = [of[ball.kind] for ball in balls]
        arrays = {"color": [kind.colour for kind in looks], "symbol": [kind.drawn for kind in looks]}
        return [_balls(mesh, balls, arrays, p, selected, showlegend=False)]
    traces = []
    for kind in kinds:
        mine = [ball for ball in balls if ball.kind == kind.name]
        if mine:
            marker = {"color": kind.colour, "symbol": kind.drawn}
            traces.append(_balls(mesh, mine, marker, p, selected, name=kind.name))
    return traces


def mark(mesh: Mesh, rank: int, p: Palette) -> list[go.Scatter3d]:
    """A frame around the selected rank, with its name where no rank has one."""
    x, y, z = place(mesh, rank)
    frame = {"symbol": "square-open", "size": _size(mesh) * 1.3, "color": p.ink, "line": {"width": 3}}
    named = mesh.size <= MOST_NUMBERS
    return [
        go.Scatter3d(
            x=[x], y=[y], z=[z], mode="markers" if named else "markers+text", text=[pointed(f"rank {rank}")],
            textposition="top center", textfont={"size": 15, "color": p.ink}, marker=frame, hoverinfo="skip",
            name=f"selected: rank {rank}", showlegend=False,
        )
    ]  # fmt: skip


IN_SPACE = ("dp", "tp", "pp")
"""x, y and z. Along every other axis there is a block of these for each place, all side by side along x."""


def in_blocks(mesh: Mesh) -> tuple[str, ...]:
    """The axes beyond the three of space, for each place of which there is a block of ranks."""
    return tuple(axis for axis in mesh.axes if axis not in IN_SPACE)


def length(mesh: Mesh, axis: str) -> int:
    """How far the grid reaches along one of `IN_SPACE`: along x one place lies empty between two blocks."""
    if axis != IN_SPACE[0]:
        return mesh.degree(axis)
    return (mesh.degree(axis) + 1) * prod(mesh.degree(other) for other in in_blocks(mesh)) - 1


def place(mesh: Mesh, rank: int) -> tuple[int, int, int]:
    """(x, y, z) of a rank's ball."""
    at, block = mesh.coordinate(rank), 0
    for axis in in_blocks(mesh):
        block = block * mesh.degree(axis) + at[axis]
    x, y, z = (at[axis] for axis in IN_SPACE)
    return x + block * (mesh.degree(IN_SPACE[0]) + 1), y, z


def _size(mesh: Mesh) -> int:
    return 14 if mesh.size <= MOST_LABELS else 8 if mesh.size <= MOST_NUMBERS else 4


def _balls(
    mesh: Mesh,
    balls: Sequence[Ball],
    marker: Mapping[str, object],
    p: Palette,
    selected: int | None,
    **options: object,
) -> go.Scatter3d:
    x, y, z = zip(*(place(mesh, ball.rank) for ball in balls), strict=True)
    few, named = mesh.size <= MOST_LABELS, mesh.size <= MOST_NUMBERS
    text = [f"{b.rank}: {b.label}" if few and b.label else str(b.rank) for b in balls]
    text = [pointed(name) if b.rank == selected else name for b, name in zip(balls, text, strict=True)]
    line = {"color": p.ink, "width": int(named)}
    return go.Scatter3d(
        x=x, y=y, z=z, ids=[str(b.rank) for b in balls], mode="markers+text" if named else "markers", text=text,
        textposition="top center", textfont={"size": 12 if few else 10, "color": p.ink},
        customdata=[b.words for b in balls], hovertemplate="%{customdata}<extra></extra>",
        marker={"size": _size(mesh), "opacity": 1, "line": line, **marker}, **options,
    )  # fmt: skip
