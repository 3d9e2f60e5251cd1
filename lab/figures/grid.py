"""Where each rank sits: the data × tensor × pipeline grid, with what each rank holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import plotly.graph_objects as go

from engine.job import Job
from engine.mesh import AXES, Mesh, mesh_of
from engine.units import stage_lane, stages
from lab.figures.palette import Palette, Theme, figure, palette
from lab.wording import AXIS_NAMES, nbytes, percent, unit

Colour = Literal["memory", "idle", "stage"]

_DASH = {"dp": "solid", "tp": "dash", "pp": "dot"}
_SCALE_NAMES = {"memory": "peak memory", "idle": "idle ÷ total", "stage": "pipeline rank"}
MOST_LABELS = 16
MOST_NUMBERS = 128
"""With more ranks than these their numbers cover each other; they are still told when pointed at."""


def grid_figure(
    job: Job, values: Mapping[int, float] | None = None, *, colour: Colour = "stage", theme: Theme = "light"
) -> go.Figure:
    """Ranks in space: x = data, y = tensor, z = pipeline, lines join the ranks that talk along each axis.

    values: what the colour shows for each rank: bytes for "memory", a fraction for "idle"; "stage" needs
    none.
    """
    mesh, p = mesh_of(job), palette(theme)
    if colour == "stage" or not values:
        values, colour = {r: float(mesh.coordinate(r).pp) for r in range(mesh.size)}, "stage"
    traces = [line for axis in AXES if mesh.degree(axis) > 1 for line in [_lines(mesh, axis, p)]]
    traces.append(_ranks(job, mesh, values, colour, p))
    fig = figure(grid_title(job, values, colour), theme, 520, traces)
    named = zip(("xaxis", "yaxis", "zaxis"), AXES, strict=True)
    axes = {name: _axis(mesh, axis, p) for name, axis in named}
    longest = max(mesh.degree(axis) for axis in AXES)
    aspect = {xyz: 0.5 + 0.5 * mesh.degree(axis) / longest for xyz, axis in zip("xyz", AXES, strict=True)}
    fig.update_layout(
        legend={"y": 0, "yanchor": "bottom"}, scene={**axes, "aspectmode": "manual", "aspectratio": aspect}
    )
    return fig.update_layout(
        scene_camera={"eye": {"x": 1.2, "y": -1.65, "z": 0.75}, "center": {"x": 0, "y": 0, "z": -0.18}}
    )


def grid_title(job: Job, values: Mapping[int, float], colour: Colour) -> str:
    plan = job.plan
    shape = f"{plan.dp} data × {plan.tp} tensor × {plan.pp} pipeline = {job.world_size} ranks"
    if colour == "stage":
        return shape
    most = max(values, key=lambda r: values[r])
    return f"{shape}; most {_SCALE_NAMES[colour]}: rank {most}, {_value(values[most], colour)}"


def _value(value: float, colour: Colour) -> str:
    return nbytes(value) if colour == "memory" else percent(value) if colour == "idle" else f"{value:.0f}"


def holds(job: Job, pipeline: int) -> str:
    """The layers of a pipeline rank in few words: "embedding, blocks 0–1"."""
    units = [unit for s, stage in enumerate(stages(job)) if stage_lane(job.plan, s) == pipeline for unit in stage]
    numbers = [int(unit.removeprefix("block")) for unit in units if unit.startswith("block")]
    words = ["embedding"] if "embedding" in units else []
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    if runs:
        spans = ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
        words.append(f"block{'s' if len(numbers) > 1 else ''} {spans}")
    return ", ".join(words + (["head"] if "head" in units else []))


def _lines(mesh: Mesh, axis: str, p: Palette) -> go.Scatter3d:
    """One broken line through all groups of an axis."""
    points: list[tuple[float | None, ...]] = []
    for group in mesh.groups(axis):
        points += [_place(mesh, rank) for rank in group] + [(None, None, None)]
    x, y, z = zip(*points, strict=True)
    colour = {"dp": p.brown, "tp": p.purple, "pp": p.sky}[axis]
    return go.Scatter3d(
        x=x, y=y, z=z, mode="lines", name=f"{AXIS_NAMES[axis]} groups", hoverinfo="skip",
        line={"color": colour, "width": 5, "dash": _DASH[axis]},
    )  # fmt: skip


def _place(mesh: Mesh, rank: int) -> tuple[int, int, int]:
    at = mesh.coordinate(rank)
    return at.dp, at.tp, at.pp


def _ranks(job: Job, mesh: Mesh, values: Mapping[int, float], colour: Colour, p: Palette) -> go.Scatter3d:
    ranks = sorted(values)
    x, y, z = zip(*(_place(mesh, rank) for rank in ranks), strict=True)
    layers = [holds(job, pipeline) for pipeline in range(mesh.pp)]
    held = [layers[mesh.coordinate(rank).pp] for rank in ranks]
    shown = [_value(values[rank], colour) for rank in ranks]
    share = f", 1/{mesh.tp} of each" if mesh.tp > 1 else ""
    hover = [
        f"<b>rank {r}</b>, {mesh.coordinate(r)}<br>{what}{share}<br>{_SCALE_NAMES[colour]} {value}"
        for r, what, value in zip(ranks, held, shown, strict=True)
    ]
    few = mesh.size <= MOST_LABELS
    text = [f"{r}: {what}" if few else str(r) for r, what in zip(ranks, held, strict=True)]
    name_of_unit, scale = unit(max(values.values())) if colour == "memory" else ("", 1.0)
    number = [values[r] / scale for r in ranks]
    bar = {
        "title": {"text": f"{_SCALE_NAMES[colour]}{f' ({name_of_unit})' if name_of_unit else ''}", "side": "top"},
        "orientation": "h",
        "thickness": 10,
        "len": 0.4,
        "x": 1,
        "xanchor": "right",
        "y": 0,
        "yanchor": "bottom",
        "tickformat": ".0%" if colour == "idle" else "",
    }
    named = mesh.size <= MOST_NUMBERS
    return go.Scatter3d(
        x=x, y=y, z=z, mode="markers+text" if named else "markers", text=text, textposition="top center",
        showlegend=False,
        textfont={"size": 12 if few else 10, "color": p.ink}, customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
        marker={"size": 14 if few else 8 if named else 4, "color": number, "colorscale": "Cividis",
                "cmin": 0, "cmax": max(number) or 1, "showscale": colour != "stage",
                "colorbar": bar, "line": {"color": p.ink, "width": int(named)}, "opacity": 1},
    )  # fmt: skip


def _axis(mesh: Mesh, axis: str, p: Palette) -> dict[str, object]:
    n = mesh.degree(axis)
    return {
        "title": {"text": f"{AXIS_NAMES[axis]} ({axis})"},
        "tickvals": list(range(n)),
        "range": [-0.5, n - 0.5],
        "backgroundcolor": p.paper,
        "gridcolor": p.grid,
        "color": p.faint,
        "zeroline": False,
        "showspikes": False,
    }
