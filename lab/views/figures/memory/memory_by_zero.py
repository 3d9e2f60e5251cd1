"""What each ZeRO stage saves: peak memory of one rank under stages 0 to 3, formula beside what was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np
import plotly.graph_objects as go

from engine.job import rules
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.prediction.peak_memory import predicted_memory
from engine.recording.tables import CATEGORIES
from lab.analysis.memory import KEY, memory_peaks
from lab.views.figures.memory.memory import bar, totals
from lab.views.figures.style.palette import Palette, Theme, empty, figure, palette
from lab.wording import nbytes, percent, unit

Peaks = Mapping[str, int]
STAGES = (0, 1, 2, 3)
_STATES = ("params", "grads", "optimizer")


def at_stage(job: Job, zero: int) -> Job:
    """The same job under another ZeRO stage; not checked."""
    return replace(job, plan=replace(job.plan, zero=zero))


@lru_cache(maxsize=32)
def by_formula(job: Job, rank: int | None) -> tuple[int, Mapping[int, Peaks], Mapping[int, str]]:
    """(rank, stage → its predicted peaks, stage → why the job cannot have it).

    rank None: the one that peaks highest in the first stage that is legal. Kept: a page asks again at each click, and
    of a long program it takes seconds.
    """
    found: dict[int, Peaks] = {}
    refused: dict[int, str] = {}
    for zero in STAGES:
        try:
            rules.check(at_stage(job, zero))
        except JobRefused as reason:
            refused[zero] = str(reason)
            continue
        rows = predicted_memory(at_stage(job, zero))
        if rank is None:
            rank = max(rows, key=lambda row: row["total_peak"])["rank"]
        found[zero] = rows[rank]
    return rank or 0, found, refused


def rehearsed(job: Job, rank: int, cache_dir: Path | None = None) -> Peaks:
    """Peaks of one rank, every operator executed on tensors without data.

    cache_dir: a folder of templates, which saves loading torch if such operators were executed before.
    """
    from engine.prediction.rehearsal.rehearse import rehearse

    (found,) = memory_peaks(rehearse(job, ranks=[rank], cache_dir=cache_dir))
    return cast(Peaks, found)  # a row of the summary: all whole numbers


def state_bytes(row: Peaks) -> int:
    """Parameters, gradients and optimizer state together: what ZeRO shards."""
    return sum(row[name] for name in _STATES)


def saved(row: Peaks, before: Peaks) -> float:
    """Share of the model states of stage 0 that a stage does without."""
    return 1 - state_bytes(row) / state_bytes(before)


def memory_by_zero_figure(
    job: Job,
    rank: int,
    formula: Mapping[int, Peaks],
    run: Mapping[int, Peaks],
    how: str,
    refused: Mapping[int, str] | None = None,
    *,
    theme: Theme = "light",
) -> go.Figure:
    """A pair of bars for each stage. run: stage → peaks of what was run or rehearsed; how: which of the two.

    Formulas: `engine.prediction.formulas.state_bytes` (Rajbhandari et al. 2020, figure 1) and the walk over the
    program.
    """
    reasons = "<br>".join(f"ZeRO-{zero}: {why}" for zero, why in (refused or {}).items())
    if not formula:
        return empty("Memory by ZeRO stage", reasons, theme)
    p, traces = palette(theme), []
    name_of_unit, scale = unit(max(row["total_peak"] for row in (*formula.values(), *run.values())))
    for which, rows, shift in ((how, run, -0.21), ("by the formula", formula, 0.21)):
        traces += _stack(which, rows, shift, scale, p)
    fig = figure(_title(job, rank, formula, run, how), theme, 440, traces, barmode="overlay")
    _annotate(fig, formula, run, scale, p)
    names = [f"ZeRO-{zero}" for zero in STAGES]
    fig.update_xaxes(tickvals=list(STAGES), ticktext=names, showgrid=False, range=[-0.5, 3.5])
    sides = f"solid, left: {how};<br>hatched, right: by the formula" if run else "by the formula"
    fig.update_xaxes(title_text=f"{sides}<br>states: parameters, gradients, optimizer")
    highest = max(sum(row[KEY[name]] for name in CATEGORIES) for row in (*formula.values(), *run.values()))
    return fig.update_yaxes(title_text=name_of_unit, range=[0, highest / scale * 1.28])


def _stack(which: str, rows: Mapping[int, Peaks], shift: float, scale: float, p: Palette) -> list[go.Bar | go.Scatter]:
    if not rows:
        return []
    x, bottom = np.array(list(rows), float) + shift, np.zeros(len(rows))
    traces: list[go.Bar | go.Scatter] = []
    for name in CATEGORIES:
        values = np.array([row[KEY[name]] for row in rows.values()], float)
        if values.any():
            traces.append(bar(name, which, x, bottom, values, scale, p))
        bottom += values
    return [*traces, totals(which, x, [row["total_peak"] for row in rows.values()], scale, p)]


def _annotate(fig: go.Figure, formula: Mapping[int, Peaks], run: Mapping[int, Peaks], scale: float, p: Palette) -> None:
    """Above each stage what it saves of the model states and of the peak."""
    for zero, row in formula.items():
        top = max(sum(one[KEY[name]] for name in CATEGORIES) for one in (row, run.get(zero, row)))
        words = nbytes(run.get(zero, row)["total_peak"])
        if zero and 0 in formula:
            words = f"states<br><b>−{100 * saved(row, formula[0]):.3g} %</b><br>peak {_less(row, formula[0])}"
        font = {"color": p.ink, "size": 11}  # four of them fit beside each other on a phone
        fig.add_annotation(x=zero, y=top / scale, text=words, showarrow=False, yanchor="bottom", font=font)


def _less(row: Peaks, before: Peaks) -> str:
    change = row["total_peak"] / before["total_peak"] - 1
    return f"{'+' if change > 0 else '−'}{percent(abs(change))}"


def _title(job: Job, rank: int, formula: Mapping[int, Peaks], run: Mapping[int, Peaks], how: str) -> str:
    if job.plan.dp == 1:
        return "With one data rank ZeRO has nobody to shard with: every stage holds the same"
    if 0 not in formula or len(formula) == 1:
        return f"Peak memory of rank {rank} by ZeRO stage"
    best = max(formula, key=lambda zero: saved(formula[zero], formula[0]))
    agree = sum(run[z]["total_peak"] == formula[z]["total_peak"] for z in run)
    said = f"; {agree} of {len(run)} peaks {how} equal the formula" if run else ""
    return f"ZeRO-{best} saves {100 * saved(formula[best], formula[0]):.3g} % of rank {rank}'s model states{said}"


def measured(per_rank: Sequence[Mapping[str, int]], rank: int, stands_for: Mapping[int, int]) -> Peaks | None:
    """The row of `rank`, or of the one that stands for it."""
    rows = {row["rank"]: row for row in per_rank}
    return rows.get(rank, rows.get(stands_for.get(rank, rank)))
