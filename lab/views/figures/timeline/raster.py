"""The timeline of many operations: each cell shows what a rank mostly did in that sliver of time."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lab.analysis.step.idle import busy
from lab.analysis.step.intervals import covered, spans
from lab.analysis.step.overlap import blocking
from lab.views.figures.style.palette import Palette
from lab.views.figures.timeline.lanes import CATEGORIES, COMPUTING, LABELS, Lanes, categories

CELLS = 1000
Floats = NDArray[np.float64]


def raster_traces(lanes: Lanes, p: Palette, of: str = "") -> list[go.Heatmap]:
    """One heatmap a category, blank where another one dominates; nothing is left out by sampling.

    of: which of several steps this is; goes into the names of the rows.
    """
    shares, edges = compute_shares(lanes)
    dominant = shares.argmax(axis=0)
    centres = (edges[:-1] + edges[1:]) / 2
    traces = []
    for i, name in enumerate(CATEGORIES):
        share = np.where(dominant == i, shares[i], np.nan).astype(np.float32)
        if np.isnan(share).all():
            continue
        colour = p.every[i] if name != "idle" else p.idle_raster
        traces.append(
            go.Heatmap(
                z=share,
                x=centres.astype(np.float32),
                y=[row_name(lanes, rank, of) for rank in lanes.order],
                name=LABELS[name],
                ygap=2,
                colorscale=[[0, colour], [1, colour]],
                zmin=0,
                zmax=1,
                showscale=False,
                showlegend=True,
                hovertemplate=f"%{{y}}, mostly {LABELS[name]}, %{{z:.0%}} of this cell, %{{x:.2f}} ms<extra></extra>",
            )
        )
    return traces


def row_name(lanes: Lanes, rank: int, of: str = "") -> str:
    """The rank as the axis names it. of: which run, where two are compared."""
    return f"{lanes.ops.rank_names[rank]} {of}".rstrip()


def compute_shares(lanes: Lanes) -> tuple[Floats, Floats]:
    """(fraction[category, rank, cell] of each cell's time on the compute stream, edges of the cells in ms).

    A computation gives up the time of the collectives inside it; what no computation and no collective
    fills is idle.
    """
    ops, edges = lanes.ops, np.linspace(lanes.origin, lanes.end, CELLS + 1)
    names, inside = categories(ops), blocking(ops)
    on_stream = ops.on_compute | inside
    found = np.zeros((len(CATEGORIES), len(lanes.order), CELLS))
    place = {rank: row for row, rank in enumerate(lanes.order)}
    cell = max((lanes.end - lanes.origin) / CELLS, 1)
    for rank, rows in ops.by_rank():
        for i, name in enumerate(CATEGORIES[:-1]):
            mine = on_stream[rows] & (names[rows] == name)
            found[i, place[rank]] = covered(spans(ops.start[rows][mine], ops.end[rows][mine]), edges) / cell
        working = covered(busy(ops, rows), edges) / cell
        nested = sum(found[CATEGORIES.index(n), place[rank]] for n in ("tensor", "data", "pipeline"))
        computing = found[:COMPUTING, place[rank]].sum(axis=0)
        found[:COMPUTING, place[rank]] *= np.maximum(working - nested, 0) / np.where(computing > 0, computing, 1)
        found[-1, place[rank]] = 1 - working
    return found, (edges - lanes.origin) / 1e6
