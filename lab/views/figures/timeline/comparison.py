"""A measured step and its replay on one axis of time: the measured lanes above, the predicted ones below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise

import plotly.graph_objects as go

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.prediction.critical_path import PathPiece, critical_path
from engine.prediction.replay.steps import recorded_steps
from engine.recording.tables import Recording
from lab.analysis.step.path import legs
from lab.analysis.step.step_ops import step_ops
from lab.views.figures.style.clock import time_axis
from lab.views.figures.style.palette import Palette, Theme, figure, palette
from lab.views.figures.timeline.lanes import COMPUTE_HEIGHT, Boxes, Lanes, boxes, lay_out
from lab.views.figures.timeline.raster import raster_traces, row_name
from lab.views.figures.timeline.timeline import MOST_BOXES, bars, rank_label, texts
from lab.wording import percent, seconds

MEASURED, PREDICTED = "measured", "predicted"
_BETWEEN = 0.5  # lanes of room between the two
_MOST_PATHS = 16  # ranks up to which the critical path can be followed by eye


def comparison_figure(
    measured: Recording, predicted: Recording, job: Job, *, step: int, theme: Theme = "light"
) -> go.Figure:
    """Both timelines of a step, each from its own beginning, with the critical path of each."""
    above = lay_out(step_ops(measured, step), mesh_of(job))
    below = lay_out(step_ops(predicted, replayed_step(predicted, step)), mesh_of(job))
    below = replace(below, offset=len(above.order) + _BETWEEN)
    p = palette(theme)
    few = len(above.ops.rank) + len(below.ops.rank) <= MOST_BOXES
    if few:
        traces = bars(_merged(above, below, p), p, theme) + texts(above, p) + texts(below, p)
        if len(above.order) <= _MOST_PATHS:
            traces.append(_path(above, measured, below, predicted, p))
    else:
        traces = _raster(above, below, p)
    height = min(130 + (74 if few else 18) * 2 * len(above.order), 1800)
    fig = figure(comparison_title(above, below, step), theme, height, traces, barmode="overlay", hovermode="closest")
    end = max(above.milliseconds, below.milliseconds)
    words = " since the start of the step"
    fig.update_xaxes(range=[0, end * 1.01], zeroline=False, **time_axis(end, words))
    if few:
        fig.add_vline(x=below.milliseconds, line={"color": p.faint, "dash": "dot", "width": 1.5})
        fig.add_vline(x=above.milliseconds, line={"color": p.faint, "dash": "dot", "width": 1.5})
        return fig.update_yaxes(**_axis(above, below))
    names = [
        name for rank in above.order for name in (row_name(above, rank, MEASURED), row_name(below, rank, PREDICTED))
    ]
    return fig.update_yaxes(categoryorder="array", categoryarray=names[::-1], showgrid=False)


def replayed_step(predicted: Recording, step: int) -> int:
    """The step of a replay to hold against `step`: the same, or else the one it has."""
    steps = recorded_steps(predicted)
    return step if step in steps else steps[0]


def comparison_title(above: Lanes, below: Lanes, step: int) -> str:
    """Both lengths, and how far the prediction is off."""
    took, said = above.milliseconds / 1e3, below.milliseconds / 1e3
    off = said / took - 1 if took else 0.0
    way = "exactly that" if not off else f"{percent(abs(off))} {'less' if off < 0 else 'more'}"
    return f"Step {step} took {seconds(took)}; predicted were {seconds(said)}, {way}"


def _merged(above: Lanes, below: Lanes, p: Palette) -> dict[str, Boxes]:
    """The boxes of both, by category; what a box says begins with which of the two it is of."""
    found, other = boxes(above, p), boxes(below, p)
    for name, box in found.items():
        box.hover = [f"{MEASURED}: {text}" for text in box.hover]
        other[name].hover = [f"{PREDICTED}: {text}" for text in other[name].hover]
        for column in fields(box):
            getattr(box, column.name).extend(getattr(other[name], column.name))
    return found


def _path(above: Lanes, measured: Recording, below: Lanes, predicted: Recording, p: Palette) -> go.Scatter:
    """The critical path of both, a line along the upper edge of the lanes it runs through."""
    x: list[float | None] = []
    y: list[float | None] = []
    said: list[str] = []
    for lanes, recording in ((above, measured), (below, predicted)):
        for at, height, words in _points(lanes, critical_path(recording, int(lanes.ops.table["step"][0].as_py()))):
            x.append(at)
            y.append(height)
            said.append(words)
        x.append(None)
        y.append(None)
        said.append("")
    return go.Scatter(
        x=x, y=y, mode="lines", name="critical path", line={"color": p.ink, "width": 2.5}, customdata=said,
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def _points(lanes: Lanes, path: tuple[PathPiece, ...]) -> Iterator[tuple[float, float, str]]:
    place = {rank: i + lanes.offset for i, rank in enumerate(lanes.order)}
    for leg in legs(path):
        words = f"critical path: {leg.words}, rank {leg.rank}, {seconds((leg.end_ns - leg.start_ns) / 1e9)}"
        for at in (leg.start_ns, leg.end_ns):
            yield (at - lanes.origin) / 1e6, place[leg.rank] - COMPUTE_HEIGHT / 2 - 0.07, words


def _raster(above: Lanes, below: Lanes, p: Palette) -> list[go.Heatmap]:
    """Both as rasters; each category once in the legend."""
    traces = raster_traces(above, p, MEASURED) + raster_traces(below, p, PREDICTED)
    for before, trace in pairwise([None, *sorted(traces, key=lambda t: str(t.name))]):
        trace.legendgroup = trace.name
        trace.showlegend = before is None or before.name != trace.name
    return traces


def _axis(above: Lanes, below: Lanes) -> dict[str, object]:
    """Names of the lanes, and which of the two they are of."""
    names, places = [], []
    for lanes, of in ((above, MEASURED), (below, PREDICTED)):
        names += [f"{rank_label(lanes, rank)}<br><b style='font-size:10px'>{of}</b>" for rank in lanes.order]
        places += [i + lanes.offset for i in range(len(lanes.order))]
    bottom = places[-1] + (below.thin_y(below.axes[-1]) if below.axes else 0) + 0.4
    return {
        "tickvals": places, "ticktext": names, "ticklabelstandoff": 5, "range": [bottom, -0.5], "showgrid": False,
        "zeroline": False,
    }  # fmt: skip
