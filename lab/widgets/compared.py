"""Runs side by side in a notebook: a table of differences, and their timelines on one axis of time."""

from __future__ import annotations

import html
from collections.abc import Sequence

import ipywidgets

from lab import comparing
from lab.runs import Run
from lab.timeline import TimelineWidget, timeline_data
from lab.widgets.modules import styles
from lab.wording import SCHEDULE_NAMES


class Compared(ipywidgets.VBox):
    """Two to six runs against the first. Zooming one timeline zooms all."""

    def __init__(self, runs: Sequence[Run]) -> None:
        comparing.refuse(runs)
        self.settings, self.lines = comparing.settings(runs), comparing.lines(runs)
        self.timelines = [
            TimelineWidget(data=timeline_data(run.recording, run.job), group=f"compared-{id(self)}", label=name(i, run))
            for i, run in enumerate(runs)
        ]
        named = [part for i, run in enumerate(runs) for part in (_heading(name(i, run)), self.timelines[i])]
        super().__init__([ipywidgets.HTML(_table(runs, self.settings, self.lines)), *named])


def name(i: int, run: Run) -> str:
    """A, B… and the run's plan."""
    plan = run.job.plan
    zero = f", ZeRO-{plan.zero}" if run.job.effective_zero else ""
    schedule = f", {SCHEDULE_NAMES[plan.schedule]}" if plan.pp > 1 else ""
    return f"{chr(ord('A') + i)}: {plan.dp} data × {plan.tp} tensor × {plan.pp} pipeline{zero}{schedule}"


def _heading(text: str) -> ipywidgets.HTML:
    return ipywidgets.HTML(f'<div class="shardlab"><strong>{html.escape(text)}</strong></div>')


def _table(runs: Sequence[Run], settings: dict[str, tuple[object, ...]], lines: Sequence[comparing.Line]) -> str:
    """What was set differently, then what came out."""
    heads = "".join(f'<th scope="col">{html.escape(name(i, run))}</th>' for i, run in enumerate(runs))
    set_rows = "".join(_row(option, [html.escape(str(v)) for v in values]) for option, values in settings.items())
    came_out = "".join(_row(line.name, [_cell(line, i) for i in range(len(runs))]) for line in lines)
    return (
        f'<style>{styles()}</style><div class="shardlab shardlab-compared" tabindex="0" role="region"'
        ' aria-label="Runs compared">'
        f"<table><caption>Differences against A</caption><thead><tr><th></th>{heads}</tr></thead>"
        f'<tbody class="set">{set_rows}</tbody><tbody>{came_out}</tbody></table></div>'
    )


def _row(head: str, cells: list[str]) -> str:
    return f'<tr><th scope="row">{html.escape(head)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _cell(line: comparing.Line, i: int) -> str:
    value = line.values[i]
    words = "none" if value is None else line.words(value)
    change = line.change(i)
    return html.escape(words) + (f"<small>{html.escape(change)}</small>" if change else "")
