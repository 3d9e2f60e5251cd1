"""Runs side by side in a notebook: a table of differences, and their timelines on one axis of time."""

from __future__ import annotations

import html
from collections.abc import Sequence

import ipywidgets

from lab.analysis.comparison import lines as comparing
from lab.analysis.comparison.text import explain
from lab.facade import Run
from lab.views.timeline import TimelineWidget, timeline_data
from lab.widgets.modules import styles

_MEANING = {"better": "better than A", "worse": "worse than A", "noise": "within the noise between the runs' own steps"}


class Compared(ipywidgets.VBox):
    """Two to six runs against the first, in numbers and in words. Zooming one timeline zooms all."""

    def __init__(self, runs: Sequence[Run]) -> None:
        comparing.refuse(runs)
        self.settings, self.lines = comparing.settings(runs), comparing.lines(runs)
        self.sentences = explain(runs)
        names = comparing.names(runs)
        self.timelines = [
            TimelineWidget(data=timeline_data(run.recording, run.job), group=f"compared-{id(self)}", label=names[i])
            for i, run in enumerate(runs)
        ]
        named = [part for i, run in enumerate(runs) for part in (_heading(names[i]), self.timelines[i])]
        badges = [badge.short or "–" for badge in comparing.verdicts(runs)]
        text = _table(names, self.settings, badges, self.lines) + _told(self.sentences)
        super().__init__([ipywidgets.HTML(text), *named])


def _heading(text: str) -> ipywidgets.HTML:
    return ipywidgets.HTML(f'<div class="shardlab"><strong>{html.escape(text)}</strong></div>')


def _table(
    names: Sequence[str],
    settings: dict[str, tuple[object, ...]],
    badges: Sequence[str],
    lines: Sequence[comparing.Line],
) -> str:
    """What was set differently, then what came out."""
    heads = "".join(f'<th scope="col">{html.escape(named)}</th>' for named in names)
    set_rows = "".join(_row(option, [html.escape(str(v)) for v in values]) for option, values in settings.items())
    came_out = _row(comparing.AGAINST_ONE_PROCESS, list(map(html.escape, badges))) if badges else ""
    came_out += "".join(_row(line.name, [_cell(line, i) for i in range(len(names))]) for line in lines)
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
    return html.escape(words) + (f"<small>{html.escape(change)}{_mark(line, i)}</small>" if change else "")


def _mark(line: comparing.Line, i: int) -> str:
    """A sign and its word: better, worse, or within noise."""
    judged = line.judged(i)
    return f' <span title="{_MEANING[judged]}">{comparing.MARKS[judged]} {judged}</span>' if judged else ""


def _told(sentences: Sequence[str]) -> str:
    return f'<div class="shardlab">{"".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)}</div>'
