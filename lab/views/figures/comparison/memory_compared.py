"""Peak memory of the fullest rank of several runs, by category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from engine.recording.tables import CATEGORIES, CATEGORY_WORDS
from lab.analysis.memory import KEY
from lab.views.figures.memory.memory import category_colours
from lab.views.figures.style.palette import Theme, empty, figure, ink_on, palette
from lab.views.figures.style.run_styles import letter, run_labels
from lab.wording import nbytes, percent, unit

_NAMED = 0.09  # of the longest bar: a part as long as that has room for its bytes
_WIDTH = 0.62


def memory_compared_figure(
    fullest: Sequence[Mapping[str, int]], names: Sequence[str], *, theme: Theme = "light"
) -> go.Figure:
    """A bar for each run. fullest: of each the peaks of its fullest rank, a row as in the summary's `memory`.

    Each part is the category's own peak; the diamond on the bar's edge marks the highest total at any one time, which
    is lower where the peaks do not coincide.
    """
    if not all(fullest):
        return empty("Peak memory", "No step was completed, so no memory was recorded.", theme)
    p = palette(theme)
    longest = max(sum(row[KEY[name]] for name in CATEGORIES) for row in fullest)
    name_of_unit, scale = unit(longest)
    places = [*range(len(fullest))]
    traces: list[go.Bar | go.Scatter] = []
    for name, colour in category_colours(p).items():
        values = [row[KEY[name]] for row in fullest]
        if any(values):
            traces.append(
                go.Bar(
                    orientation="h", y=places, x=[v / scale for v in values], name=CATEGORY_WORDS[name], width=_WIDTH,
                    text=[nbytes(v) if v > _NAMED * longest else "" for v in values], textposition="inside",
                    insidetextanchor="middle", textangle=0, textfont={"size": 11, "color": ink_on(colour)},
                    customdata=[nbytes(v) for v in values], marker={"color": colour, "line": {"width": 0}},
                    hovertemplate=f"{CATEGORY_WORDS[name]}: %{{customdata}}<extra></extra>",
                )
            )  # fmt: skip
    traces.append(_totals(fullest, scale, theme))
    fig = figure(_title(fullest, names), theme, 190 + 58 * len(fullest), traces, barmode="stack")
    fig.update_layout(legend_traceorder="normal", title_xref="container", title_pad_l=8)
    fig.update_xaxes(title_text=f"{name_of_unit} on the fullest rank", range=[0, 1.04 * longest / scale])
    return fig.update_yaxes(
        tickvals=places, ticktext=run_labels(names, theme), range=[len(fullest) - 0.5, -0.5], showgrid=False
    )


def _totals(fullest: Sequence[Mapping[str, int]], scale: float, theme: Theme) -> go.Scatter:
    p = palette(theme)
    return go.Scatter(
        x=[row["total_peak"] / scale for row in fullest], y=[i + _WIDTH / 2 for i in range(len(fullest))],
        mode="markers", name="highest total at one time", customdata=[nbytes(row["total_peak"]) for row in fullest],
        hovertemplate="highest total: %{customdata}<extra></extra>",
        marker={"symbol": "diamond", "size": 10, "color": p.ink, "line": {"color": p.paper, "width": 1.5}},
    )  # fmt: skip


def _title(fullest: Sequence[Mapping[str, int]], names: Sequence[str]) -> str:
    peaks = [row["total_peak"] for row in fullest]
    low, high = peaks.index(min(peaks)), peaks.index(max(peaks))
    if peaks[low] == peaks[high]:
        return f"All peak at {nbytes(peaks[0])} on their fullest rank"
    less = percent(1 - peaks[low] / peaks[high])
    return (
        f"{letter(names[low])} peaks lowest: {nbytes(peaks[low])} on its fullest rank, {less} less than"
        f" {letter(names[high])} with {nbytes(peaks[high])}"
    )
