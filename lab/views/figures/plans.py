"""Figures of plans: they take a job, or runs for the jobs that were run, and draw what the engine computes for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import plotly.graph_objects as go

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.job.schedules import SCHEDULES
from lab.analysis.recorded_run import HasRecording
from lab.analysis.shards import State
from lab.store.store import Store
from lab.views.figures.memory.memory_by_zero import at_stage, by_formula, measured, memory_by_zero_figure, rehearsed
from lab.views.figures.memory.shards import first_block, shards_figure
from lab.views.figures.pipeline.bubble_curve import HasBubble, bubble_curve_figure
from lab.views.figures.pipeline.schedules import HasJob, job_of, ordered_schedules, own_order, schedules_figure
from lab.views.figures.style.palette import Theme, empty
from lab.views.figures.style.selected_rank import checked


def memory_by_zero(
    what: HasRecording | Job | Sequence[HasRecording], theme: Theme = "light", selected: int | None = None
) -> go.Figure:
    """Peak memory of one rank under each ZeRO stage, with what each stage saves.

    what: runs that differ in ZeRO, newest first, whose measured peaks stand beside the formula; or a job, each stage of
    which is then rehearsed (loads torch). selected: whose memory; default: the rank that peaks highest.
    """
    runs = [] if isinstance(what, Job) else [*what] if isinstance(what, Sequence) else [what]
    if not runs and not isinstance(what, Job):
        return empty("Memory by ZeRO stage", "No run was given.", theme)
    job = what if isinstance(what, Job) else runs[0].job
    rank, formula, refused = by_formula(job, checked(selected, job))
    if isinstance(what, Job):
        root = Store().root
        kept = root / "templates" if root.exists() else None
        done: dict[int, Any] = {zero: rehearsed(at_stage(job, zero), rank, kept) for zero in formula}
        return memory_by_zero_figure(job, rank, formula, done, "rehearsed", refused, theme=theme)
    found = {
        run.job.plan.zero: row
        for run in reversed(runs)
        if (row := measured(run.summary["memory"]["per_rank"], rank, run.recording.stands_for)) is not None
    }
    return memory_by_zero_figure(job, rank, formula, found, "measured", refused, theme=theme)


def shards(
    what: HasJob | Job,
    unit: str | None = None,
    theme: Theme = "light",
    selected: int | None = None,
    state: State | None = None,
) -> go.Figure:
    """The weight matrices of a unit to scale, with who keeps which part.

    unit: "block0", "embedding", "head"…; default: the first block of the selected rank, else block0. state: of which
    ZeRO's slices are shown, "params", "grads" or "optimizer". Raises `JobRefused` if there is no such unit.
    """
    job = job_of(what)
    checked(selected, job)
    return shards_figure(job, unit or first_block(job, selected), state=state, theme=theme, selected=selected)


def schedules(
    what: HasJob | Job | Sequence[HasJob | Job],
    names: Iterable[str] | None = None,
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """Pipeline ranks × time at unit costs: of one job under each of the schedules `names` (default: all),
    of several jobs each its own.

    A schedule that is not legal for the job is left out, with the reason in words. A run of an order written by hand
    comes first. selected: a rank, whose place in the pipeline is marked.
    """
    if isinstance(what, Sequence):
        every = [own_order(one) for one in what]
        left_out: dict[str, str] = {}
    else:
        job = job_of(what)
        checked(selected, job)
        every, left_out = ordered_schedules(job, SCHEDULES.names if names is None else names)
        every = [*([own_order(what)] if getattr(what, "by_hand", False) else []), *every]
        selected = None if selected is None else mesh_of(job).coordinate(selected).pp
    return schedules_figure(every, left_out, theme=theme, selected=selected)


def bubble_curve(
    runs: HasBubble | Sequence[HasBubble] = (),
    job: Job | None = None,
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """Bubble against micro-batches: formulas as curves, runs as points, newest first as `lab.runs()` gives
    them.

    selected is taken so that every figure can be called alike; a bubble is no rank's own.
    """
    return bubble_curve_figure(list(runs) if isinstance(runs, Sequence) else [runs], job, theme=theme)
