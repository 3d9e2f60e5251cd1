"""Schedules beside each other: who computes what when, at unit costs, on one axis of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from textwrap import wrap
from typing import Any, Protocol

import plotly.graph_objects as go

from engine.job import rules
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.program.compile import compile_job
from engine.program.dryrun import DryRun, Span, dry_run, in_flight
from engine.program.kinds import KINDS, Kind
from engine.program.program import Program
from lab.views.figures.style.kind_colour import kind_colour
from lab.views.figures.style.palette import Palette, Theme, empty, figure, hatched, ink_on, palette
from lab.views.figures.style.selected_rank import pointed
from lab.wording import percent

_DRAWN_FIRST = (Kind.FORWARD, Kind.RECOMPUTE)
_NARROWEST = 420  # pixels that the axis of time has at least
_LETTERS = 62  # in a line below the figure, so that it fits a narrow page
_HEADING = 1.35  # rows that the name of a schedule takes


class HasJob(Protocol):
    """What this needs of a run. Its program, where it has one, is what is drawn."""

    @property
    def job(self) -> Job: ...


def job_of(what: HasJob | Job) -> Job:
    """The job itself, or that of a run."""
    return what if isinstance(what, Job) else what.job


@dataclass(frozen=True)
class Ordered:
    """A program with a name, walked at unit costs: a block's forward takes 1, its backward 2 or 1 + 1."""

    name: str
    program: Program
    chunks: int = 1

    @cached_property
    def walk(self) -> DryRun:
        return dry_run(self.program)

    @property
    def bubble(self) -> float:
        """Idle ÷ total over all pipeline ranks."""
        return float(self.walk.bubble())

    @cached_property
    def peaks(self) -> tuple[float, ...]:
        """Micro-batches whose activations each pipeline rank holds at most; those of one chunk count 1/v."""
        return tuple(held / self.chunks for held in in_flight(self.program))


def ordered_schedules(job: Job, names: Iterable[str]) -> tuple[list[Ordered], dict[str, str]]:
    """The job under each schedule, and of those that are not legal for it the reason in words."""
    found, refused = [], {}
    for name in names:
        other = job.under(name)
        try:
            rules.check(other)
        except JobRefused as reason:
            refused[SCHEDULES[name].label] = str(reason)
            continue
        chunks = f", {other.plan.chunks} chunks" if other.plan.chunks > 1 else ""
        found.append(Ordered(f"{SCHEDULES[name].label}{chunks}", compile_job(other), other.plan.chunks))
    return found, refused


def own_order(what: HasJob | Job) -> Ordered:
    """The order of a job or run as it is. Raises `JobRefused` for a job that breaks a rule."""
    job = job_of(what)
    own: Program | None = getattr(what, "program", None) if getattr(what, "by_hand", False) else None
    if own is not None:  # a run's
        return Ordered("order by hand", own, job.plan.chunks)
    rules.check(job)
    chunks = f", {job.plan.chunks} chunks" if job.plan.chunks > 1 else ""
    name = f"{SCHEDULES[job.plan.schedule].label}{chunks}, {job.plan.microbatches} micro-batches"
    return Ordered(name, compile_job(job), job.plan.chunks)


def schedules_figure(
    every: Sequence[Ordered],
    left_out: Mapping[str, str] | None = None,
    *,
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """Pipeline ranks × time under each schedule. selected: a pipeline rank to mark. left_out: name → why."""
    reasons = [line for name, why in (left_out or {}).items() for line in wrap(f"{name} is left out: {why}", _LETTERS)]
    if not every:
        return empty("Schedules", "<br>".join(reasons) or "No schedule was given.", theme)
    p, tops = palette(theme), _tops(every)
    length = float(max(one.walk.makespan for one in every)) or 1.0
    traces = _bars(every, tops, p, theme)
    traces += [_texts(every, tops, length, p), _peaks(every, tops, length, p)]
    rows = tops[-1] + len(every[-1].program.lanes)
    height = round((24 if len(every[0].program.lanes) <= 8 else 14) * rows) + 120 + 18 * len(reasons)
    fig = figure(_title(every), theme, height, traces, barmode="overlay", legend_traceorder="normal")
    for one, top in zip(every, tops, strict=True):
        fig.add_annotation(x=0, y=top - 0.95, text=_heading(one), showarrow=False, xanchor="left", yanchor="middle")
    below = "<br>".join(
        ["time, in forwards of one block", *(f"<span style='font-size:12px'>{r}</span>" for r in reasons)]
    )
    fig.update_xaxes(title_text=below, range=[0, length * 1.12], showgrid=False)
    fig.update_yaxes(range=[rows - 0.4, -0.6], showgrid=False, zeroline=False, **_lanes(every, tops, selected))
    _frames(fig, every, tops, selected, length, p)
    return fig


def _tops(every: Sequence[Ordered]) -> list[float]:
    """The row of each schedule's first pipeline rank."""
    tops, row = [], 0.0
    for one in every:
        tops.append(row + _HEADING)
        row += _HEADING + len(one.program.lanes)
    return tops


def _heading(one: Ordered) -> str:
    return f"<b>{one.name}</b>: bubble {percent(one.bubble)}, micro-batches in flight at most {max(one.peaks):.3g}"


def _title(every: Sequence[Ordered]) -> str:
    least, most = min(every, key=lambda one: one.bubble), max(every, key=lambda one: one.bubble)
    if len(every) == 1 or least.bubble == most.bubble:
        return f"{least.name}: bubble {percent(least.bubble)} = idle ÷ total at unit costs"
    return (
        f"{least.name} idles least: bubble {percent(least.bubble)}, {most.name} {percent(most.bubble)}"
        " (idle ÷ total at unit costs)"
    )


def boxes(one: Ordered) -> list[list[Span]]:
    """Runs of computations of one kind, stage and micro-batch without a gap, of all pipeline ranks."""
    working = [span for span in one.walk.spans if span.action.kind.computes and span.end > span.start]
    working.sort(key=lambda span: (span.pp_rank, span.position))
    found: list[list[Span]] = []
    for span in working:
        before = found[-1][-1] if found else None
        if before is not None and before.end == span.start and _same(before, span):
            found[-1].append(span)
        else:
            found.append([span])
    return found


def _same(a: Span, b: Span) -> bool:
    one, other = ((s.pp_rank, s.action.kind, s.action.stage, s.action.microbatch) for s in (a, b))
    return one == other


def _gaps(one: Ordered) -> list[tuple[int, float, float]]:
    """(pipeline rank, start, end) of every stretch in which it computes nothing."""
    found, end = [], float(one.walk.makespan)
    working = {pp_rank: list(runs) for pp_rank, runs in groupby(boxes(one), key=lambda run: run[0].pp_rank)}
    for pp_rank in range(len(one.program.lanes)):
        edges = [(0.0, 0.0), *((float(r[0].start), float(r[-1].end)) for r in working.get(pp_rank, [])), (end, end)]
        found += [(pp_rank, a_end, b_start) for (_, a_end), (b_start, _) in pairwise(edges) if b_start > a_end]
    return found


def _bars(every: Sequence[Ordered], tops: Sequence[float], p: Palette, theme: Theme) -> list[go.Bar]:
    """A trace for each kind of computation, and one for idle."""
    looks = _looks(p, theme)
    columns: dict[str, list[tuple[float, float, float, str]]] = {name: [] for name in looks}
    for one, top in zip(every, tops, strict=True):
        for run in boxes(one):
            action, start, end = run[0].action, float(run[0].start), float(run[-1].end)
            words = f"{action.kind.words}, micro-batch {action.microbatch}, stage {action.stage}: {start:g} to {end:g}"
            columns[action.kind.words].append((top + run[0].pp_rank, start, end, f"{one.name}<br>{words}"))
        for pp_rank, start, end in _gaps(one):
            columns["idle"].append((top + pp_rank, start, end, f"{one.name}<br>idle from {start:g} to {end:g}"))
    double = (
        Kind.BACKWARD_INPUT.words if columns[Kind.BACKWARD.words] else ""
    )  # of one colour: once in the legend is enough
    return [
        go.Bar(
            orientation="h", y=[y for y, *_ in rows], base=[a for _, a, _, _ in rows], x=[b - a for _, a, b, _ in rows],
            width=0.82, name=name, marker=looks[name], customdata=[words for *_, words in rows], textposition="none",
            hovertemplate="%{customdata}<extra></extra>", showlegend=name != double,
        )
        for name, rows in columns.items()
        if rows
    ]  # fmt: skip


def _looks(p: Palette, theme: Theme) -> dict[str, dict[str, Any]]:
    edge = {"line": {"color": p.paper, "width": 0.5}}
    again = {"pattern": {"shape": "/", "fgcolor": p.paper, "bgcolor": p.blue, "size": 6, "solidity": 0.3}}
    looks = {kind.words: {"color": kind_colour(kind, p), **edge} for kind in _DRAWN_FIRST}
    looks[Kind.RECOMPUTE.words] = {"color": p.blue, **edge, **again}
    rest = (kind for kind in KINDS if kind.cost and kind not in _DRAWN_FIRST)
    return (
        looks
        | {kind.words: {"color": kind_colour(kind, p), **edge} for kind in rest}
        | {"idle": hatched(p.idle, theme)}
    )


def _texts(every: Sequence[Ordered], tops: Sequence[float], length: float, p: Palette) -> go.Scatter:
    """Numbers of micro-batches where they fit; a stroke for each chunk after the first."""
    x, y, text, ink = [], [], [], []
    for one, top in zip(every, tops, strict=True):
        ranks = len(one.program.lanes)
        for run in boxes(one):
            action, start, end = run[0].action, float(run[0].start), float(run[-1].end)
            name = f"{action.microbatch}{'′' * ((action.stage or 0) // ranks)}"
            if (end - start) / length * _NARROWEST >= 7 * len(name) + 3:
                x.append((start + end) / 2)
                y.append(top + run[0].pp_rank)
                text.append(name)
                ink.append(ink_on(p.blue if action.kind is Kind.RECOMPUTE else kind_colour(action.kind, p)))
    font = {"size": 11, "color": ink}
    return go.Scatter(x=x, y=y, text=text, mode="text", textfont=font, hoverinfo="skip", showlegend=False)


def _peaks(every: Sequence[Ordered], tops: Sequence[float], length: float, p: Palette) -> go.Scatter:
    """At the end of each row what the rank holds at most."""
    rows = [(top + z, peak) for one, top in zip(every, tops, strict=True) for z, peak in enumerate(one.peaks)]
    return go.Scatter(
        x=[1.02 * length] * len(rows), y=[y for y, _ in rows], text=[f"holds {peak:.3g}" for _, peak in rows],
        mode="text", textposition="middle right", textfont={"size": 11, "color": p.ink}, showlegend=False,
        hovertemplate="%{text} micro-batches' activations at most<extra></extra>", cliponaxis=False,
    )  # fmt: skip


def _lanes(every: Sequence[Ordered], tops: Sequence[float], selected: int | None) -> dict[str, list[Any]]:
    places, names = [], []
    for one, top in zip(every, tops, strict=True):
        for pp_rank in range(len(one.program.lanes)):
            name = f"pipeline {pp_rank}"
            places.append(top + pp_rank)
            names.append(pointed(name) if pp_rank == selected else name)
    return {"tickvals": places, "ticktext": names}


def _frames(
    fig: go.Figure, every: Sequence[Ordered], tops: Sequence[float], selected: int | None, length: float, p: Palette
) -> None:
    for one, top in zip(every, tops, strict=True):
        if selected is not None and selected < len(one.program.lanes):
            y0, y1 = top + selected - 0.46, top + selected + 0.46
            fig.add_shape(
                type="rect", x0=0, x1=length * 1.12, y0=y0, y1=y1, line={"color": p.ink, "width": 2}, layer="above"
            )
