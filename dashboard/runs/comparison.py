"""Runs side by side: what was set differently, what came out, and how the numbers differ from the baseline's."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.data import cached_runs
from dashboard.page.render import ROOM, escaped, figure, theme
from lab.analysis.comparison.lines import (
    AGAINST_ONE_PROCESS,
    LETTERS,
    MARKS,
    MARKS_IN_WORDS,
    Line,
    lines,
    names,
    settings,
    table,
    verdicts,
)
from lab.analysis.comparison.text import explain
from lab.facade import Run
from lab.views import figures
from lab.views.figures.style.run_styles import run_looks
from lab.views.timeline.streamlit import Drawn, timeline

_COLOURED = {"better": ":green[{}]", "worse": ":red[{}]"}
Window = tuple[float, float]


def titles(runs: Sequence[Run]) -> list[str]:
    """A, B… with the name that somebody gave the run, or else its plan and what differs."""
    own = [cached_runs.own_name(run.info) for run in runs]
    return [f"{LETTERS[i]}: {own[i]}" if own[i] else name for i, name in enumerate(names(runs))]


def legend(called: Sequence[str]) -> None:
    """Which colour and sign is which run, here and in every figure below."""
    looks = run_looks(len(called), theme())
    with st.container(horizontal=True):
        for i, (look, name) in enumerate(zip(looks, called, strict=True)):
            sign = f'<span style="color:{look.colour}">{look.sign}</span>'
            st.html(f"<span>{sign} {html.escape(name)}{'' if i else ' <em>(baseline)</em>'}</span>")


def sentences(runs: Sequence[Run]) -> None:
    """What differs between the runs, a line for each finding."""
    for sentence in explain(runs):
        st.markdown(f"- {escaped(sentence)}")


def differing(runs: Sequence[Run]) -> None:
    """The settings of the jobs that are not the same in all runs."""
    differ = settings(runs)
    if not differ:
        st.info("These runs are of the same job: what differs below is this machine.")
        return
    rows = {escaped(name): [escaped(str(value)) or "none" for value in values] for name, values in differ.items()}
    st.table(pd.DataFrame.from_dict(rows, orient="index", columns=list(LETTERS[: len(runs)])))


def deltas(runs: Sequence[Run]) -> None:
    """Every quantity of each run, and its difference from the baseline: absolute, relative, better or worse."""
    badges = [escaped(badge.short) or "–" for badge in verdicts(runs)]
    judged = (
        {AGAINST_ONE_PROCESS: [badges[0], *(words for badge in badges[1:] for words in (badge, ""))]} if badges else {}
    )
    found = judged | {line.name: _row(line, len(runs)) for line in _told_once(lines(runs), runs)}
    columns = ["A, baseline", *[words for i in range(1, len(runs)) for words in (LETTERS[i], f"{LETTERS[i]} − A")]]
    st.table(pd.DataFrame.from_dict(found, orient="index", columns=columns))
    st.caption(MARKS_IN_WORDS)


def _told_once(found: Sequence[Line], runs: Sequence[Run]) -> list[Line]:
    """Without tokens a second where all runs have as many in a step: the step's time says the same."""
    tokens = {run.job.training.batch * run.job.model.seq for run in runs}
    return [line for line in found if line.key != "tokens_per_second" or len(tokens) > 1]


def numbers_file(runs: Sequence[Run]) -> None:
    """The same as a file: values, differences, and which way is better."""
    text = json.dumps({"runs": [run.id for run in runs], "lines": table(runs)}, indent=2)
    st.download_button(
        "Download the numbers (JSON)", text, "comparison.json", "application/json", on_click="ignore",
        type="tertiary", icon=":material/download:",
    )  # fmt: skip


def _row(line: Line, count: int) -> list[str]:
    row = [_value(line, 0)]
    for i in range(1, count):
        change = line.change(i)
        row += [_value(line, i), f"{escaped(change)} {_mark(line, i)}".rstrip()]
    return row


def _value(line: Line, i: int) -> str:
    value = line.values[i]
    return "–" if value is None else escaped(line.words(value))


def _mark(line: Line, i: int) -> str:
    judged = line.judged(i)
    return _COLOURED.get(judged, "{}").format(f"{MARKS[judged]} {judged}") if judged else ""


def timelines(drawn: Sequence[tuple[str, Drawn]], wished: Window | None) -> Window | None:
    """One below the other on one axis, of the longest; zoom and cursor are shared. Returns the window looked at."""
    found = []
    for i, (name, each) in enumerate(drawn):
        st.markdown(f"**{escaped(name)}**")
        state = timeline(each, key=f"timeline {i}", window=wished, group="compare", theme=theme(), label=name)
        found.append(state.window)
    return next((one for one in found if one != wished), wished)


def pictures(runs: Sequence[Run], called: Sequence[str]) -> None:
    """The runs side by side in each picture. called: their names, in the same order."""
    drawings: list[tuple[Any, str, str]] = [
        (figures.memory_compared, "memory", "Peak of each category on the rank that holds most."),
        (figures.idle_compared, "idle", "Of all ranks' time in a typical step: working, or idle and why."),
        (figures.communication_compared, "bytes", "What the first rank of each axis sends in a step."),
        (figures.losses, "losses", "Losses; below, how far they are from one process, with the band of parity."),
    ]
    with st.grid(min_column_width=ROOM):
        for draw, key, how in drawings:
            with st.container():
                figure(draw(runs, called, theme=theme()), f"compared {key}", how)
