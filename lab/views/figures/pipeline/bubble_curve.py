"""Bubble against micro-batches: each schedule's formula as a curve, the runs made so far as points on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import plotly.graph_objects as go

from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.prediction.formulas import bubble_formula
from engine.program.compile import compile_job
from engine.program.dryrun import dry_run
from lab.views.figures.style.palette import Palette, Theme, empty, figure, palette
from lab.wording import percent

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_LEAST_SHOWN = 32
_MOST_CURVES = 6


class HasBubble(Protocol):
    """What the curve needs of a run."""

    @property
    def job(self) -> Job: ...
    @property
    def summary(self) -> dict[str, Any]: ...


@dataclass(frozen=True, order=True)
class Curve:
    """Plans with one formula: micro-batches apart."""

    schedule: str
    ranks: int
    chunks: int

    @property
    def name(self) -> str:
        chunks = f", v={self.chunks}" if self.chunks > 1 else ""
        schedule = SCHEDULES[self.schedule]
        return f"{schedule.label}, p={self.ranks}{chunks}: {schedule.bubble_words or 'counted in slots'}"


def curve_of(job: Job) -> Curve:
    """The curve on which a job's bubble lies."""
    return Curve(job.plan.schedule, job.plan.pp, job.plan.chunks)


def curve_points(job: Job, most: int) -> list[tuple[int, float]]:
    """(m, bubble) for every legal number of micro-batches m up to `most` for which a formula is known.

    Where the schedule has none, the programs of m = 1, 2, 4, 8… are walked at unit costs.
    """
    schedule = SCHEDULES[job.plan.schedule]
    numbers = range(1, most + 1) if schedule.bubble else [2**i for i in range(most.bit_length()) if 2**i <= most]
    every = [replace(job, plan=replace(job.plan, microbatches=m)) for m in numbers]
    legal = [one for one in every if not any(schedule.complaints(one.plan))]
    values = [(one.plan.microbatches, bubble_formula(one) if schedule.bubble else _counted(one)) for one in legal]
    return [(m, float(value)) for m, value in values if value is not None]


def _counted(job: Job) -> Fraction:
    return dry_run(compile_job(job)).bubble()


def bubble_curve_figure(runs: Sequence[HasBubble], job: Job | None = None, *, theme: Theme = "light") -> go.Figure:
    """Idle ÷ total over micro-batches a step. runs: newest first, the newest is labelled. job: one to draw a curve of.

    Bubble formulas: see `engine.prediction.formulas.bubble_formula`.
    """
    jobs = [*([] if job is None else [job]), *(run.job for run in runs if not _by_hand(run))]
    known = [run for run in runs if _values(run)]
    if not jobs and not known:
        return empty("Bubble against micro-batches", "No run was made yet, and no plan was given.", theme)
    p = palette(theme)
    most = max(
        [_LEAST_SHOWN, *(2 * run.job.plan.microbatches for run in known), *(2 * j.plan.microbatches for j in jobs)]
    )
    examples = {curve_of(j): j for j in reversed(jobs)}
    curves = list(dict.fromkeys(curve_of(j) for j in jobs))[:_MOST_CURVES]
    colours = {curve: p.every[i % 7] for i, curve in enumerate(curves)}
    traces = [_line(curve, curve_points(examples[curve], most), i, colours[curve]) for i, curve in enumerate(curves)]
    traces += _points(known, colours, p)
    fig = figure(_title(known, jobs), theme, 400, traces)
    fig.update_xaxes(title_text="micro-batches a step, m", type="log", **_ticks(most))
    fig.update_yaxes(title_text="bubble = idle ÷ total", tickformat=".0%", range=[0, 1.02 * _highest(traces)])
    if known:
        _label(fig, known[0], p, most)
    return fig


def _by_hand(run: HasBubble) -> bool:
    """Whether a run's order is not its schedule's, so that no formula is known of it."""
    return run.summary["bubble"]["formula"] is None and bubble_formula(run.job) is not None


def _values(run: HasBubble) -> dict[str, float]:
    """What is known of a run's bubble: measured and counted in slots (at unit costs), or simulated."""
    found = run.summary["bubble"]
    kinds = {"measured": "measured", "counted in slots": "replayed"}
    if "cluster" in run.summary:
        kinds = {"simulated": "replayed"}
    return {kind: found[key] for kind, key in kinds.items() if found[key] is not None}


def _line(curve: Curve, points: Sequence[tuple[int, float]], number: int, colour: str) -> go.Scatter:
    return go.Scatter(
        x=[m for m, _ in points], y=[y for _, y in points], mode="lines" if len(points) > 1 else "markers",
        name=curve.name, line={"color": colour, "dash": _DASHES[number % len(_DASHES)], "width": 2.5},
        hovertemplate=f"m=%{{x}}: %{{y:.1%}}<extra>{curve.name}</extra>",
    )  # fmt: skip


_SYMBOLS = {
    "measured": ("circle", "measured"),
    "counted in slots": ("diamond", "counted in slots"),
    "simulated": ("triangle-up", "simulated on a cluster"),
}


def _points(runs: Iterable[HasBubble], colours: Mapping[Curve, str], p: Palette) -> list[go.Scatter]:
    """A trace for each way in which the bubble is known; colours are those of the curves."""
    traces = []
    for kind, (symbol, name) in _SYMBOLS.items():
        mine = [(run, _values(run)[kind]) for run in runs if kind in _values(run)]
        if mine:
            fill = [p.faint if _by_hand(run) else colours.get(curve_of(run.job), p.faint) for run, _ in mine]
            traces.append(
                go.Scatter(
                    x=[run.job.plan.microbatches for run, _ in mine], y=[y for _, y in mine], mode="markers", name=name,
                    marker={"symbol": symbol, "size": 11, "color": fill, "line": {"color": p.ink, "width": 1.5}},
                    customdata=[_words(run) for run, _ in mine],
                    hovertemplate=f"%{{y:.1%}} {name}<br>%{{customdata}}<extra></extra>",
                )
            )  # fmt: skip
    return traces


def _words(run: HasBubble) -> str:
    plan = run.job.plan
    name = "an order by hand" if _by_hand(run) else SCHEDULES[plan.schedule].label
    return f"run {getattr(run, 'id', '')}: {name}, p={plan.pp}, m={plan.microbatches}"


def _label(fig: go.Figure, run: HasBubble, p: Palette, most: int) -> None:
    right = run.job.plan.microbatches**2 < most  # so that it stays inside
    side = "left" if right else "right"
    values = _values(run)
    kind = max(values, key=lambda k: values[k])
    fig.add_annotation(
        x=math.log10(run.job.plan.microbatches), y=values[kind],
        text=f"<b>newest</b><br>{percent(values[kind])} {kind}",
        ax=40 if right else -40, ay=-28, xanchor=side, align=side,
        arrowcolor=p.ink, font={"color": p.ink}, bgcolor=p.paper,
    )  # fmt: skip


def _highest(traces: Sequence[go.Scatter]) -> float:
    return 1.12 * max(0.05, *(float(y) for trace in traces for y in trace.y))


def _ticks(most: int) -> dict[str, Any]:
    powers = [2**i for i in range(int(math.log2(most)) + 1)]
    return {"tickvals": powers, "ticktext": list(map(str, powers)), "range": [-0.06, math.log10(most) + 0.02]}


def _title(runs: Sequence[HasBubble], jobs: Sequence[Job]) -> str:
    """Of the newest run its numbers; without one what more micro-batches bring."""
    if runs:
        newest, found = runs[0], runs[0].summary["bubble"]
        numbers = [f"{percent(value)} {kind}" for kind, value in _values(newest).items()]
        if found["formula"] is not None:
            numbers.append(f"{percent(found['formula'])} by the formula")
        plan = newest.job.plan
        name = "Order by hand" if _by_hand(newest) else SCHEDULES[plan.schedule].label
        return f"{name}, {plan.pp} ranks, {plan.microbatches} micro-batches: bubble {', '.join(numbers)}"
    curve, job = curve_of(jobs[0]), jobs[0]
    points = curve_points(job, max(_LEAST_SHOWN, 2 * job.plan.microbatches))
    if not points:
        return f"No formula is known for {SCHEDULES[curve.schedule].label} with so few micro-batches"
    now = dict(points).get(job.plan.microbatches)
    here = f"bubble {percent(now)} with {job.plan.microbatches} micro-batches, " if now is not None else "bubble "
    m, least = points[-1]
    return f"{SCHEDULES[curve.schedule].label} on {curve.ranks} pipeline ranks: {here}{percent(least)} with {m}"
