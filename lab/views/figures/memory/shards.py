"""Sharded weights: each matrix of a unit drawn to scale, with who keeps which part of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import plotly.graph_objects as go

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.unit_kinds import kind_of
from engine.model.units import compute_units, units_of_pp_rank
from lab.analysis.shards import SHARDED_FROM, Area, Layout, Matrix, State, layout, local_areas
from lab.views.figures.style.palette import Palette, Theme, figure, ink_on, palette
from lab.views.figures.style.selected_rank import MARK
from lab.wording import axis_name, nbytes, percent

_NAMES: dict[State, str] = {"params": "parameters", "grads": "gradients", "optimizer": "optimizer state"}
_MOST_CUTS = 16
_MOST_NAMED = 8
_STRIP = 0.14  # of the figure's height, for the flat buffer


def shards_figure(
    job: Job,
    unit: str | None = None,
    *,
    state: State | None = None,
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """The matrices of `unit`, coloured by tensor rank, with lines where ZeRO cuts; below, the flat buffer it cuts.

    unit: default: the first block. state: of what; default: what the job's ZeRO stage cuts that a learner looks for
    first: parameters in stage 3, the optimizer's state in 1 and 2. selected: a rank whose parts are framed and filled,
    the others pale.
    Raises `JobRefused` if the job has no such unit.
    """
    p, found = palette(theme), layout(job, unit or first_block(job, None))
    state = state or ("params" if job.effective_zero in (0, 3) else "optimizer")
    sharded = job.effective_zero >= SHARDED_FROM[state]
    left = _places(found.matrices)
    traces = _matrices(job, found, left, p, selected)
    if sharded:
        traces += [_cuts(found, left, job.plan.tp, p)]
    if selected is not None:
        traces += [_own(job, found, left, selected, sharded, p)]
    if job.plan.tp > 1:
        traces += [_labels(found, left, p, selected is not None)]
    traces += _strip(job, found, sharded, selected, p)
    fig = figure(_title(job, found, state, sharded, selected), theme, 540, traces)
    _names(fig, found, left, p)
    wide = left[-1] + found.matrices[-1].columns
    tall = max(m.rows for m in found.matrices)
    hidden = {"visible": False, "showgrid": False, "zeroline": False}
    fig.update_layout(
        xaxis={**hidden, "range": [-0.01 * wide, wide * 1.01], "domain": [0, 1], "constrain": "domain"},
        yaxis={**hidden, "range": [tall * 1.02, -0.01 * tall], "domain": [_STRIP + 0.13, 0.86], "scaleanchor": "x",
               "constrain": "domain", "constraintoward": "top"},
        xaxis2={"showgrid": False, "zeroline": False, "domain": [0, 1], "anchor": "y2",
                "range": [0, found.bucket.padded],
                "title": {"text": f"flat buffer of {_bucket_words(found)}, elements"}},
        yaxis2={**hidden, "range": [-0.6, 0.75], "domain": [0, _STRIP], "anchor": "x2"},
        barmode="overlay", uniformtext={"minsize": 10, "mode": "hide"},
    )  # fmt: skip
    return fig


def first_block(job: Job, rank: int | None) -> str:
    """The first block whose parameters lie on `rank`, None: of the model; another unit where there is no block."""
    units = compute_units(job.model) if rank is None else units_of_pp_rank(job, mesh_of(job).coordinate(rank).pp)
    return next((unit for unit in units if kind_of(unit).block), units[0])


def _bucket_words(found: Layout) -> str:
    units = found.bucket.units
    return found.bucket.name if len(units) == 1 else f"{units[0]} to {units[-1]}"


def _places(matrices: Sequence[Matrix]) -> list[float]:
    """Where each matrix begins from the left, with a gap between two."""
    gap = 0.9 * min(m.columns for m in matrices)  # room for the names above
    left, at = [], 0.0
    for matrix in matrices:
        left.append(at)
        at += matrix.columns + gap
    return left


def _title(job: Job, found: Layout, state: State, sharded: bool, selected: int | None) -> str:
    tp, dp = job.plan.tp, job.plan.dp
    if selected is not None:
        at = mesh_of(job).coordinate(selected)
        if at.pp != found.pp_rank:
            home = f"pipeline {found.pp_rank}"
            return f"Rank {selected} (pipeline {at.pp}) keeps nothing of {found.unit}, which is on {home}"
        part = _held(found, at.dp, at.tp, sharded) / sum(m.rows * m.columns for m in found.matrices)
        return f"Rank {selected} keeps {percent(part)} of the {_NAMES[state]} of {found.unit}'s matrices"
    ways = [f"tensor parallelism cuts them in {tp}"] if tp > 1 else []
    if sharded:
        ways.append(f"ZeRO-{job.plan.zero} keeps 1/{dp} of {_NAMES[state]} on each data rank")
    elif dp > 1:
        ways.append(f"all {dp} data ranks hold the same {_NAMES[state]}")
    return f"{found.unit}: {'; '.join(ways) or 'one rank holds every matrix whole'}"


def _held(found: Layout, dp: int, tp: int, sharded: bool) -> int:
    """Elements of the matrices that a rank keeps."""
    return sum(area.size for matrix in found.matrices for area in kept_areas(found, matrix, dp, tp, sharded))


def kept_areas(found: Layout, matrix: Matrix, dp: int, tp: int, sharded: bool) -> list[Area]:
    """The areas of a matrix that data rank `dp` and tensor rank `tp` keep."""
    start, stop = found.own[dp] if sharded else (0, found.bucket.padded)
    return local_areas(matrix, tp, start, stop)


def _outlines(areas: Iterable[tuple[Area, float]]) -> tuple[list[float | None], list[float | None]]:
    """Closed rectangles for one trace; the number is where the matrix begins."""
    x: list[float | None] = []
    y: list[float | None] = []
    for a, left in areas:
        x += [left + a.left, left + a.right, left + a.right, left + a.left, left + a.left, None]
        y += [a.top, a.top, a.bottom, a.bottom, a.top, None]
    return x, y


def _matrices(job: Job, found: Layout, left: Sequence[float], p: Palette, selected: int | None) -> list[go.Scatter]:
    """A trace for each tensor rank, and one of names; what every tensor rank holds is drawn once, in grey."""
    tp, traces = job.plan.tp, []
    pale = 0.3 if selected is not None else 0.85
    split = [(m, at) for m, at in zip(found.matrices, left, strict=True) if m.cut != "whole"]
    whole = [(m, at) for m, at in zip(found.matrices, left, strict=True) if m.cut == "whole"]
    for index in range(tp if split else 0):
        colour = p.every[index % 7]
        x, y = _outlines((area, at) for m, at in split for area in m.tensor[index])
        traces.append(_filled(x, y, f"tensor rank {index}", colour, pale, p))
    if whole:
        x, y = _outlines((area, at) for m, at in whole for area in m.tensor[0])
        name = "held whole by every tensor rank" if tp > 1 else "held whole"
        traces.append(_filled(x, y, name, p.idle if tp > 1 else p.blue, pale, p))
    return traces


def _filled(
    x: list[float | None], y: list[float | None], name: str, colour: str, opacity: float, p: Palette
) -> go.Scatter:
    return go.Scatter(
        x=x, y=y, mode="lines", fill="toself", name=name, fillcolor=_mixed(colour, p.paper, opacity),
        line={"color": p.ink, "width": 1}, hoverinfo="name", hoveron="fills",
    )  # fmt: skip


def _mixed(colour: str, paper: str, share: float) -> str:
    ours, theirs = ([int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (colour, paper))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02X}" for a, b in zip(ours, theirs, strict=True))


def _short(name: str) -> str:
    return name.split(".", 1)[1].removesuffix(".weight")


def _labels(found: Layout, left: Sequence[float], p: Palette, pale: bool) -> go.Scatter:
    """The number of each tensor rank in each of its areas, where few enough share a matrix."""
    x, y, text, ink = [], [], [], []
    tall, wide = max(m.rows for m in found.matrices), left[-1] + found.matrices[-1].columns
    for matrix, at in zip(found.matrices, left, strict=True):
        if matrix.cut != "whole" and len(matrix.tensor) <= _MOST_NAMED:
            for index, areas in enumerate(matrix.tensor):
                for a in [a for a in areas if 16 * (a.bottom - a.top) > tall and 25 * (a.right - a.left) > wide]:
                    x.append(at + (a.left + a.right) / 2)
                    y.append((a.top + a.bottom) / 2)
                    text.append(f"t{index}")
                    ink.append(p.ink if pale else ink_on(_mixed(p.every[index % 7], p.paper, 0.85)))
    font = {"size": 12, "color": ink}
    return go.Scatter(x=x, y=y, text=text, mode="text", textfont=font, hoverinfo="skip", showlegend=False)


def _cuts(found: Layout, left: Sequence[float], tp: int, p: Palette) -> go.Scatter:
    """Lines where one data rank's slice of the flat buffer ends and the next begins."""
    x: list[float | None] = []
    y: list[float | None] = []
    edges = [stop for _, stop in found.own[:-1]]
    for stop in edges if len(edges) * tp < _MOST_CUTS else []:
        for matrix, at in zip(found.matrices, left, strict=True):
            for index in range(tp if matrix.cut != "whole" else 1):
                for area in _before(matrix, index, stop):
                    x += [at + area.left, at + area.right, None]
                    y += [area.bottom, area.bottom, None]
    return go.Scatter(
        x=x, y=y, mode="lines", name="where ZeRO cuts between data ranks", hoverinfo="skip",
        line={"color": p.ink, "width": 3, "dash": "dot"},
    )  # fmt: skip


def _before(matrix: Matrix, index: int, stop: int) -> list[Area]:
    """The last area before flat position `stop`, if that lies inside the matrix."""
    inside = matrix.offset < stop < matrix.offset + matrix.local
    return local_areas(matrix, index, 0, stop)[-1:] if inside else []


def _own(job: Job, found: Layout, left: Sequence[float], selected: int, sharded: bool, p: Palette) -> go.Scatter:
    at = mesh_of(job).coordinate(selected)
    areas = [
        (area, place)
        for matrix, place in zip(found.matrices, left, strict=True)
        for area in (kept_areas(found, matrix, at.dp, at.tp, sharded) if at.pp == found.pp_rank else [])
    ]
    x, y = _outlines(areas)
    where = ", ".join(f"{axis_name(axis)} {place}" for axis, place in at.items() if axis != "pp")
    return go.Scatter(
        x=x, y=y, mode="lines", fill="toself", name=f"{MARK} rank {selected} ({where})", hoverinfo="name",
        fillcolor=p.every[at.tp % 7] if job.plan.tp > 1 else p.blue, line={"color": p.ink, "width": 3.5},
    )  # fmt: skip


def _strip(job: Job, found: Layout, sharded: bool, selected: int | None, p: Palette) -> list[go.Bar | go.Scatter]:
    """The flat buffer: parameters one after the other, and above them each data rank's slice."""
    mine = [(name, start, size) for name, start, size in found.params]
    own = [name.startswith(f"{found.unit}.") for name, _, _ in mine]
    bars = go.Bar(
        orientation="h", y=[0] * len(mine), base=[start for _, start, _ in mine], x=[size for *_, size in mine],
        width=0.8,
        marker={"color": [p.sky if o else p.grid for o in own], "line": {"color": p.ink, "width": 0.5}},
        customdata=[f"{name}: {size:,} elements from {start:,} on" for name, start, size in mine],
        hovertemplate="%{customdata}<extra></extra>", xaxis="x2", yaxis="y2", showlegend=False, textposition="inside",
        text=[_short(name) if o else "" for (name, *_), o in zip(mine, own, strict=True)], insidetextanchor="middle",
        insidetextfont={"color": ink_on(p.sky)},
    )  # fmt: skip
    slices = found.own if sharded else ((0, found.bucket.padded),)
    at = None if selected is None else mesh_of(job).coordinate(selected)
    x: list[float | None] = []
    y: list[float | None] = []
    for start, stop in slices:
        x += [start, start, stop, stop, None]
        y += [-0.5, 0.5, 0.5, -0.5, None]
    lines = go.Scatter(
        x=x, y=y, mode="lines", xaxis="x2", yaxis="y2", line={"color": p.ink, "width": 2}, hoverinfo="skip",
        showlegend=False,
    )  # fmt: skip
    words = [f"data {i}" if len(slices) <= _MOST_NAMED else str(i) for i in range(len(slices))]
    if not sharded:
        words = ["every data rank holds all of it" if job.plan.dp > 1 else "one data rank holds all of it"]
    elif at is not None and at.pp == found.pp_rank:
        words[at.dp] = f"<b>{MARK} {words[at.dp]}</b>"
    named = go.Scatter(
        x=[(a + b) / 2 for a, b in slices], y=[0.64] * len(slices), text=words, mode="text", xaxis="x2", yaxis="y2",
        textfont={"size": 11, "color": p.ink}, showlegend=False, cliponaxis=False,
        customdata=[f"elements {a:,} to {b:,}: {nbytes((b - a) * 4)} in fp32" for a, b in slices],
        hovertemplate="%{text}: %{customdata}<extra></extra>",
    )  # fmt: skip
    return [bars, lines, named] if len(slices) <= 4 * _MOST_CUTS else [bars]


def _names(fig: go.Figure, found: Layout, left: Sequence[float], p: Palette) -> None:
    """Above each matrix its name, shape, and how tensor parallelism cuts it."""
    tall = max(m.rows for m in found.matrices)
    for matrix, at in zip(found.matrices, left, strict=True):
        cut = {"rows": "cut by rows", "columns": "cut by columns", "whole": "not cut"}[matrix.cut]
        text = f"<b>{_short(matrix.name)}</b><br>{matrix.rows} × {matrix.columns}<br>{cut}"
        fig.add_annotation(
            x=at, y=-0.01 * tall, text=text, showarrow=False, xanchor="left", yanchor="bottom", align="left",
            font={"size": 11, "color": p.ink},
        )  # fmt: skip
