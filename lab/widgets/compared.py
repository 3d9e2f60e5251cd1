"""Runs side by side in a notebook: a table of differences, and their timelines on one axis of time."""

from __future__ import annotations

import html
from collections.abc import Sequence

import ipywidgets

from lab import comparing
from lab.runs import Run
from lab.timeline import TimelineWidget, timeline_data
from lab.widgets.modules import styles

MOST_NAMED = 3  # settings in the name of a run; the table has them all


class Compared(ipywidgets.VBox):
    """Two to six runs against the first. Zooming one timeline zooms all."""

    def __init__(self, runs: Sequence[Run]) -> None:
        comparing.refuse(runs)
        self.settings, self.lines = comparing.settings(runs), comparing.lines(runs)
        names = [name(i, run, self.settings) for i, run in enumerate(runs)]
        self.timelines = [
            TimelineWidget(data=timeline_data(run.recording, run.job), group=f"compared-{id(self)}", label=names[i])
            for i, run in enumerate(runs)
        ]
        named = [part for i, run in enumerate(runs) for part in (_heading(names[i]), self.timelines[i])]
        super().__init__([ipywidgets.HTML(_table(names, self.settings, self.lines)), *named])


def name(i: int, run: Run, settings: dict[str, tuple[object, ...]]) -> str:
    """A, B… and what is set differently, or the plan where little else could tell them apart."""
    plan = run.job.plan
    shape = f"{plan.dp} data × {plan.tp} tensor × {plan.pp} pipeline"
    own = [f"{option}={values[i]}" for option, values in settings.items() if option not in ("dp", "tp", "pp")]
    return f"{chr(ord('A') + i)}: {', '.join([shape, *own[:MOST_NAMED]])}"


def _heading(text: str) -> ipywidgets.HTML:
    return ipywidgets.HTML(f'<div class="shardlab"><strong>{html.escape(text)}</strong></div>')


def _table(names: Sequence[str], settings: dict[str, tuple[object, ...]], lines: Sequence[comparing.Line]) -> str:
    """What was set differently, then what came out."""
    heads = "".join(f'<th scope="col">{html.escape(named)}</th>' for named in names)
    set_rows = "".join(_row(option, [html.escape(str(v)) for v in values]) for option, values in settings.items())
    came_out = "".join(_row(line.name, [_cell(line, i) for i in range(len(names))]) for line in lines)
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
