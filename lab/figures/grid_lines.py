"""The lines of the grid: which ranks talk along which axis, those of a chosen rank, and over which links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import plotly.graph_objects as go

from engine.cluster import Cluster, Link
from engine.mesh import AXES, Mesh
from lab.figures.grid_ranks import place
from lab.figures.palette import Palette
from lab.wording import AXIS_NAMES, rate, seconds

_DASH = {"dp": "solid", "tp": "dash", "pp": "dot"}
_MOST_LISTED = 8


def axis_lines(mesh: Mesh, p: Palette, selected: int | None) -> list[go.Scatter3d]:
    """A broken line through all groups of each axis. With a selected rank its own groups are thick, the others thin."""
    traces = []
    for axis in AXES:
        if mesh.degree(axis) == 1:
            continue
        if selected is None:
            traces.append(_line(mesh, mesh.groups(axis), _style(axis, p, 5), f"{AXIS_NAMES[axis]} groups"))
            continue
        own = mesh.group(axis, selected)
        others = [group for group in mesh.groups(axis) if group != own]
        if others:
            traces.append(_line(mesh, others, _style(axis, p, 1), f"other {AXIS_NAMES[axis]} groups", opacity=0.35))
        traces.append(_line(mesh, [own], _style(axis, p, 10), f"{AXIS_NAMES[axis]} group: ranks {_listed(own)}"))
    return traces


def tier_lines(mesh: Mesh, cluster: Cluster | None, p: Palette) -> list[go.Scatter3d]:
    """Neighbours in a group joined by the kind of link between them: inside a node, or across nodes."""
    pairs = [pair for axis in AXES for group in mesh.groups(axis) for pair in pairwise(group)]
    if cluster is None:
        return [_line(mesh, pairs, {"color": p.faint, "width": 4}, "on this machine")] if pairs else []
    across = [pair for pair in pairs if cluster.node_of(pair[0]) != cluster.node_of(pair[1])]
    inside = [pair for pair in pairs if cluster.node_of(pair[0]) == cluster.node_of(pair[1])]
    tiers = [
        (inside, "inside a node", cluster.inside_of(0), {"color": p.sky, "width": 7}),
        (across, "across nodes", cluster.across, {"color": p.orange, "width": 3, "dash": "dash"}),
    ]
    return [_line(mesh, of, style, f"{name}: {_speed(link)}") for of, name, link, style in tiers if of]


def _speed(link: Link) -> str:
    return f"{rate(link.bandwidth, 'B/s')}, {seconds(link.latency_s)} a hop"


def _style(axis: str, p: Palette, width: int) -> dict[str, object]:
    colour = {"dp": p.brown, "tp": p.purple, "pp": p.sky}[axis]
    return {"color": colour, "width": width, "dash": _DASH[axis]}


def _listed(ranks: Sequence[int]) -> str:
    more = "" if len(ranks) <= _MOST_LISTED else f" … {ranks[-1]}"
    return ", ".join(map(str, ranks[:_MOST_LISTED])) + more


def _line(
    mesh: Mesh, groups: Iterable[Sequence[int]], style: dict[str, object], name: str, opacity: float = 1.0
) -> go.Scatter3d:
    points: list[tuple[float | None, ...]] = []
    for group in groups:
        points += [place(mesh, rank) for rank in group] + [(None, None, None)]
    x, y, z = zip(*points, strict=True)
    return go.Scatter3d(x=x, y=y, z=z, mode="lines", name=name, hoverinfo="skip", line=style, opacity=opacity)
