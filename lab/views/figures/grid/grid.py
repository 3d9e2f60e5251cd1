"""Each rank on the data × tensor × pipeline grid: what it holds, in which node it sits, what it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import plotly.graph_objects as go

from engine.cluster.cluster import Cluster
from engine.job.job import Job
from engine.job.mesh import Mesh, mesh_of
from engine.model.unit_kinds import UnitKind, kind_of, number_of
from engine.model.units import pp_rank_of_stage, stages
from lab.analysis.step.activity import Activity
from lab.views.figures.grid.grid_kinds import activity_balls, activity_kinds, activity_words, node_kinds
from lab.views.figures.grid.grid_lines import axis_lines, tier_lines
from lab.views.figures.grid.grid_ranks import (
    IN_SPACE,
    MOST_LABELS,
    MOST_NUMBERS,
    Ball,
    by_kind,
    by_value,
    in_blocks,
    length,
    mark,
)
from lab.views.figures.style.palette import Palette, Theme, figure, palette
from lab.wording import axis_name, mesh_words, nbytes, percent, seconds, unit

__all__ = ["MOST_LABELS", "MOST_NUMBERS", "Colour", "activity_grid", "grid_figure", "holds", "node_grid"]

Colour = Literal["memory", "idle", "stage", "node", "activity"]

_SCALE_NAMES = {"memory": "peak memory", "idle": "idle ÷ total", "stage": "pipeline rank"}


def grid_figure(
    job: Job,
    values: Mapping[int, float] | None = None,
    *,
    colour: Literal["memory", "idle", "stage"] = "stage",
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """Ranks in space: x = data, y = tensor, z = pipeline, lines join the ranks that talk along each axis.

    Further axes of the mesh are drawn as blocks side by side.

    values: what the colour shows for each rank: bytes for "memory", a fraction for "idle"; "stage" needs
    none. selected: its groups are drawn thick and named.
    """
    mesh, p = mesh_of(job), palette(theme)
    if colour == "stage" or not values:
        values, colour = {r: float(mesh.coordinate(r).pp) for r in range(mesh.size)}, "stage"
    name_of_unit, scale = unit(max(values.values())) if colour == "memory" else ("", 1.0)
    held = _held(job, mesh)
    balls = [
        Ball(r, label, f"{_who(mesh, r, held)}<br>{_SCALE_NAMES[colour]} {_value(v, colour)}", "", v / scale)
        for r, v in sorted(values.items())
        for label in [held[r] if mesh.degree("pp") > 1 else ""]  # without stages all hold the same layers
    ]
    bar = None if colour == "stage" else _scale(colour, name_of_unit)
    traces = [*axis_lines(mesh, p, selected), by_value(mesh, balls, bar, p, selected)]
    return _scene(job, mesh, grid_title(job, values, colour), traces, theme, selected)


def node_grid(job: Job, cluster: Cluster | None, *, theme: Theme = "light", selected: int | None = None) -> go.Figure:
    """The grid coloured by the node that holds each rank; lines are links. cluster None: all on this machine."""
    mesh, p, held = mesh_of(job), palette(theme), _held(job, mesh_of(job))
    node = {r: 0 if cluster is None else cluster.node_of(r) for r in range(mesh.size)}
    balls = [
        Ball(r, f"node {n}", f"{_who(mesh, r, held)}<br>node {n} of {len(set(node.values()))}", f"node {n}")
        for r, n in node.items()
    ]
    kinds = node_kinds(sorted(set(node.values())), p)
    traces = [*tier_lines(mesh, cluster, p, selected), *by_kind(mesh, balls, kinds, p, selected)]
    return _scene(job, mesh, node_title(job, mesh, cluster), traces, theme, selected)


def activity_grid(
    job: Job,
    doing: Mapping[int, Activity],
    at_s: float,
    *,
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """The grid coloured by what each rank does `at_s` seconds into a step."""
    mesh, p = mesh_of(job), palette(theme)
    held = _held(job, mesh)
    balls = activity_balls(doing, {rank: _who(mesh, rank, held) for rank in doing})
    traces = [*axis_lines(mesh, p, selected), *by_kind(mesh, balls, activity_kinds(p), p, selected)]
    title = f"{seconds(at_s)} into the step: {activity_words(doing, selected)}"
    return _scene(job, mesh, title, traces, theme, selected)


def _scene(
    job: Job, mesh: Mesh, title: str, traces: Sequence[go.Scatter3d], theme: Theme, selected: int | None
) -> go.Figure:
    """The traces in a box with the lab's axes and camera."""
    p = palette(theme)
    chosen = [] if selected is None else mark(mesh, selected, p)
    fig = figure(title, theme, 520, [*traces, *chosen])
    axes = {f"{xyz}axis": _axis(mesh, axis, p) for xyz, axis in zip("xyz", IN_SPACE, strict=True)}
    longest = max(length(mesh, axis) for axis in IN_SPACE)
    aspect = {xyz: 0.5 + 0.5 * length(mesh, axis) / longest for xyz, axis in zip("xyz", IN_SPACE, strict=True)}
    fig.update_layout(
        legend={"y": 0, "yanchor": "bottom"}, scene={**axes, "aspectmode": "manual", "aspectratio": aspect}
    )
    return fig.update_layout(
        scene_camera={"eye": {"x": 1.2, "y": -1.65, "z": 0.75}, "center": {"x": 0, "y": 0, "z": -0.18}}
    )


def _shape(job: Job) -> str:
    ranks = f"{job.world_size} rank{'s' if job.world_size > 1 else ''}"
    return f"{mesh_words(job.plan)} = {ranks}"


def grid_title(job: Job, values: Mapping[int, float], colour: str) -> str:
    """values: of each rank what it is coloured by, in the unit of `colour`."""
    if colour == "stage":
        return _shape(job)
    most = max(values, key=lambda r: values[r])
    return f"{_shape(job)}; most {_SCALE_NAMES[colour]}: rank {most}, {_value(values[most], colour)}"


def node_title(job: Job, mesh: Mesh, cluster: Cluster | None) -> str:
    """Which axes stay inside nodes: the question that a rank order answers."""
    if cluster is None:
        return f"{_shape(job)}, all on one node: this machine"
    nodes = len({cluster.node_of(r) for r in range(mesh.size)})
    busy = [axis for axis in mesh.axes if mesh.degree(axis) > 1]
    crossing = [a for a in busy if any(len({cluster.node_of(r) for r in group}) > 1 for group in mesh.groups(a))]
    on = f"{job.world_size} ranks on {nodes} node{'s' if nodes > 1 else ''} of {cluster.name}"
    if not crossing:
        return f"{on}: no group leaves its node"
    across = " and ".join(axis_name(a) for a in crossing)
    within = " and ".join(axis_name(a) for a in busy if a not in crossing)
    return f"{on}: {across} groups cross nodes" + (f", {within} groups stay inside" if within else "")


def _value(value: float, colour: str) -> str:
    return nbytes(value) if colour == "memory" else percent(value) if colour == "idle" else f"{value:.0f}"


def _held(job: Job, mesh: Mesh) -> dict[int, str]:
    """What layers each rank holds."""
    layers = [holds(job, pipeline) for pipeline in range(mesh.degree("pp"))]
    return {rank: layers[mesh.coordinate(rank).pp] for rank in range(mesh.size)}


def _who(mesh: Mesh, rank: int, held: Mapping[int, str]) -> str:
    tp = mesh.degree("tp")
    share = f", 1/{tp} of each" if tp > 1 else ""
    return f"<b>rank {rank}</b>, {mesh.coordinate(rank)}<br>{held[rank]}{share}"


def holds(job: Job, pipeline: int) -> str:
    """The layers of a pipeline rank in few words: "embedding, blocks 0–1"."""
    names = [name for s, units in enumerate(stages(job)) if pp_rank_of_stage(job.plan, s) == pipeline for name in units]
    of_kind: dict[UnitKind, list[str]] = {}
    for name in names:
        of_kind.setdefault(kind_of(name), []).append(name)
    return ", ".join(
        f"{kind.name}{'s' if len(found) > 1 else ''} {_spans(map(number_of, found))}" if kind.block else kind.name
        for kind, found in of_kind.items()
    )


def _spans(numbers: Iterable[int]) -> str:
    """0–1, 4."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _scale(colour: str, name_of_unit: str) -> dict[str, object]:
    return {
        "title": {"text": f"{_SCALE_NAMES[colour]}{f' ({name_of_unit})' if name_of_unit else ''}", "side": "top"},
        "orientation": "h",
        "thickness": 10,
        "len": 0.35,
        "x": 1,
        "xanchor": "right",
        "y": 1,
        "yanchor": "top",
        "tickformat": ".0%" if colour == "idle" else "",
    }


def _axis(mesh: Mesh, axis: str, p: Palette) -> dict[str, object]:
    n, whole = mesh.degree(axis), length(mesh, axis)
    blocks = range(0, whole, n + 1)
    ticks = [(start + i, str(i)) for start in blocks for i in range(0, n, max(1, n * len(blocks) // 8))]
    more = "".join(f"<br>blocks: {axis_name(other)} ({other})" for other in in_blocks(mesh) if axis == IN_SPACE[0])
    return {
        "title": {"text": f"{axis_name(axis)}<br>({axis}){more}"},
        "tickvals": [at for at, _ in ticks],
        "ticktext": [text for _, text in ticks],
        "range": [-0.5, whole - 0.5],
        "backgroundcolor": p.paper,
        "gridcolor": p.grid,
        "color": p.faint,
        "zeroline": False,
        "showspikes": False,
    }
