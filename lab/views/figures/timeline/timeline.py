"""Ranks × time of one step: who computed, who sent, who stood idle and why."""

from __future__ import annotations

import plotly.graph_objects as go

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.job.schedules import SCHEDULES
from engine.recording.tables import Recording
from lab.analysis.step.idle import bubble, bubble_formula
from lab.analysis.step.step_ops import step_ops, typical_step
from lab.views.figures.style.clock import time_axis
from lab.views.figures.style.palette import Palette, Theme, empty, figure, hatched, ink_on, palette
from lab.views.figures.timeline.lanes import CATEGORIES, LABELS, Boxes, Lanes, boxes, labels, lay_out
from lab.views.figures.timeline.raster import raster_traces
from lab.wording import axis_name, percent

MOST_BOXES = 4000
"""Above this many boxes a browser gets slow to zoom, so the timeline is drawn as a raster instead."""
_MOST_NAMED_LANES = 16
_NARROWEST = 600  # pixels the time axis has at least; what fits there fits everywhere


def timeline_figure(
    recording: Recording, job: Job, *, step: int | None = None, theme: Theme = "light", by_hand: bool = False
) -> go.Figure:
    """The timeline of a step, by default the typical one. by_hand: the program is not the job's own."""
    step = typical_step(recording) if step is None else step
    if step is None:
        return empty("Timeline", "No step was completed, so there is nothing to draw.", theme)
    lanes = lay_out(step_ops(recording, step), mesh_of(job))
    p, few = palette(theme), _few(lanes)
    traces = bars(boxes(lanes, p), p, theme) + texts(lanes, p) if few else raster_traces(lanes, p)
    height = min(90 + (74 if few else 18) * len(lanes.order), 1400)
    fig = figure(
        timeline_title(recording, job, step, by_hand), theme, height, traces, barmode="overlay", hovermode="closest"
    )
    end, words = lanes.milliseconds, f" since the start of step {step}"
    fig.update_xaxes(range=[0, end], zeroline=False, **time_axis(end, words))
    return fig.update_yaxes(**(_rank_axis(lanes) if few else {"autorange": "reversed", "showgrid": False}))


def _few(lanes: Lanes) -> bool:
    """Whether the step has few enough operations to draw each."""
    return len(lanes.ops.rank) <= MOST_BOXES


def timeline_title(recording: Recording, job: Job, step: int, by_hand: bool = False) -> str:
    """The point of the timeline in one line."""
    share = f"{percent(bubble(recording, job, step))} = idle ÷ total on the compute streams of step {step}"
    if job.plan.pp == 1 and not by_hand:
        return f"Idle {share}; no pipeline"
    formula = bubble_formula(job)
    if by_hand or formula is None:
        return f"Bubble {share}; no formula is known for this program"
    return f"Bubble {share}; {SCHEDULES[job.plan.schedule].label} formula {percent(formula)}"


def bars(found: dict[str, Boxes], p: Palette, theme: Theme) -> list[go.Bar]:
    """One trace a category: the cost of drawing grows with the number of traces."""
    colours = dict(zip(CATEGORIES, p.every, strict=True))
    traces = []
    for name in CATEGORIES:  # idle last: it covers the part of a step in which the rank only waits
        box = found[name]
        if not box.start:
            continue
        plain = {"color": colours[name], "line": {"color": p.paper, "width": 0.6}}
        traces.append(
            go.Bar(
                orientation="h", name=LABELS[name], base=box.start, x=box.length, y=box.y, width=box.height,
                marker=hatched(colours[name], theme) if name == "idle" else plain,
                customdata=box.hover, hovertemplate="%{customdata}<extra></extra>", textposition="none",
            )
        )  # fmt: skip
    return traces


def texts(lanes: Lanes, p: Palette) -> list[go.Scatter]:
    """What stands in the boxes, one trace for all; none where no box is wide enough."""
    found = list(labels(lanes, _NARROWEST))
    if not found:
        return []
    x, y, text, names = zip(*found, strict=True)
    colours = dict(zip(CATEGORIES, p.every, strict=True))
    ink = {"size": 12, "color": [ink_on(colours[name]) for name in names]}
    return [go.Scatter(x=x, y=y, text=text, mode="text", textfont=ink, hoverinfo="skip", showlegend=False)]


def _rank_axis(lanes: Lanes) -> dict[str, object]:
    """Names of the ranks and of the thin lanes below each."""
    at = {r: lanes.mesh.coordinate(r) for r in lanes.order}
    degrees = [axis for axis in lanes.mesh.axes if lanes.mesh.degree(axis) > 1]
    where = {r: " ".join(f"{axis}{at[r][axis]}" for axis in degrees) for r in lanes.order}
    names = [f"{rank_label(lanes, r)}<br><span style='font-size:10px'>{where[r]}</span>" for r in lanes.order]
    if lanes.ops.stands_for:  # a rank stands for other places too
        names = [rank_label(lanes, r) for r in lanes.order]
    places = [float(row) for row in range(len(names))]
    if len(lanes.order) > _MOST_NAMED_LANES:
        names = [str(r) for r in lanes.order]
    else:
        for axis in lanes.axes:
            names += [f"<span style='font-size:9px'>{axis_name(axis)}</span>"] * len(lanes.order)
            places += [row + lanes.thin_y(axis) for row in range(len(lanes.order))]
    bottom = len(lanes.order) - 1 + (lanes.thin_y(lanes.axes[-1]) if lanes.axes else 0) + 0.3
    return {
        "tickvals": places, "ticktext": names, "range": [bottom, -0.45], "showgrid": False, "zeroline": False,
    }  # fmt: skip


def rank_label(lanes: Lanes, rank: int) -> str:
    """The rank's name, on two lines where it stands for others."""
    name, *others = lanes.ops.rank_names[rank].split(" (")
    return "<br>".join([name, *(f"<span style='font-size:10px'>({words}</span>" for words in others)])
