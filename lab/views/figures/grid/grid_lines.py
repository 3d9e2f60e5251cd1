"""The lines of the grid: which ranks talk along which axis, those of a chosen rank, and over which links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import plotly.graph_objects as go

from engine.cluster.cluster import Cluster, Link
from engine.job.axes import AXES
from engine.job.mesh import Mesh
from lab.views.figures.grid.grid_ranks import MOST_NUMBERS, place
from lab.views.figures.style.palette import Palette
from lab.wording import axis_name, rate, seconds

_DASH = {"dp": "solid", "tp": "dash", "pp": "dot"}
_DASH_OF_OTHERS = "dashdot"
_MOST_LISTED = 8


def axis_lines(mesh: Mesh, p: Palette, selected: int | None) -> list[go.Scatter3d]:
    """A broken line through all groups of each axis. With a selected rank its own groups are thick, the others thin."""
    traces = []
    for axis in mesh.axes:
        if mesh.degree(axis) == 1:
            continue
        own = [] if selected is None else mesh.group(axis, selected)
        colour = {"batch": p.brown, "tensors": p.purple, "layers": p.sky}[AXES[axis].divides]
        style = {"color": colour, "dash": _DASH.get(axis, _DASH_OF_OTHERS)}
        others = [group for group in mesh.groups(axis) if group != own]
        traces += _lines(mesh, others, [own], style, f"{axis_name(axis)} groups", bool(own))
        if own:
            traces[-1].name = f"{axis_name(axis)} group: ranks {_listed(own)}"
    return traces


def tier_lines(mesh: Mesh, cluster: Cluster | None, p: Palette, selected: int | None) -> list[go.Scatter3d]:
    """Neighbours in a group joined by the kind of link between them: inside a node, or across nodes.

    With a selected rank the links of its own groups are thick.
    """
    groups = [group for axis in mesh.axes for group in mesh.groups(axis)]
    traces = []
    for name, look in _tiers(cluster, p).items():
        mine: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        for group in groups:
            pairs = [pair for pair in pairwise(group) if _tier(cluster, *pair) == name.split(":")[0]]
            (mine if selected in group else others).extend(pairs)
        traces += _lines(mesh, others, mine, look, name, selected is not None)
    return traces


def _tier(cluster: Cluster | None, a: int, b: int) -> str:
    if cluster is None:
        return "on this machine"
    return "inside a node" if cluster.node_of(a) == cluster.node_of(b) else "across nodes"


def _tiers(cluster: Cluster | None, p: Palette) -> dict[str, dict[str, object]]:
    """The kinds of links by name, with how each is drawn."""
    if cluster is None:
        return {"on this machine": {"color": p.faint}}
    return {
        f"inside a node: {_speed(cluster.inside_of(0))}": {"color": p.sky},
        f"across nodes: {_speed(cluster.across)}": {"color": p.orange, "dash": "dash"},
    }


def _lines(
    mesh: Mesh,
    others: Sequence[Sequence[int]],
    own: Sequence[Sequence[int]],
    style: Mapping[str, object],
    name: str,
    chosen: bool,
) -> list[go.Scatter3d]:
    """Up to two lines: those of other groups, faint where a rank is chosen, and its own."""
    plain = 5 if mesh.size <= MOST_NUMBERS else 2
    traces = []
    if others:
        traces.append(_line(mesh, others, {**style, "width": 1 if chosen else plain}, name))
        traces[-1].update(opacity=0.35 if chosen else 1.0, showlegend=not (chosen and any(own)))
    if any(own):
        traces.append(_line(mesh, own, {**style, "width": 10}, name))
    return traces


def _speed(link: Link) -> str:
    return f"{rate(link.bandwidth, 'B/s')}, {seconds(link.latency_s)} a hop"


def _listed(ranks: Sequence[int]) -> str:
    more = "" if len(ranks) <= _MOST_LISTED else f" … {ranks[-1]}"
    return ", ".join(map(str, ranks[:_MOST_LISTED])) + more


def _line(mesh: Mesh, groups: Iterable[Sequence[int]], style: dict[str, object], name: str) -> go.Scatter3d:
    points: list[tuple[float | None, ...]] = []
    for group in groups:
        points += [place(mesh, rank) for rank in group] + [(None, None, None)]
    x, y, z = zip(*points, strict=True)
    return go.Scatter3d(x=x, y=y, z=z, mode="lines", name=name, hoverinfo="skip", line=style)
