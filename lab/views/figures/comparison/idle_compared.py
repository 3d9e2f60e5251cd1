"""Where the time of several runs went: computing, and each cause of standing idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from lab.analysis import CAUSES, PART_NAMES
from lab.views.figures.pipeline.bubble import NAMES, marker_of
from lab.views.figures.style.palette import Theme, empty, figure, palette
from lab.views.figures.style.run_styles import letter, run_labels
from lab.wording import percent


def idle_compared_figure(
    shares: Sequence[Mapping[str, float]], names: Sequence[str], *, theme: Theme = "light"
) -> go.Figure:
    """A bar for each run. shares: of all ranks' time in its typical step, by `analysis.PARTS`; {} if there is none."""
    if not all(shares):
        return empty("Where the time went", "No step was completed.", theme)
    p, places = palette(theme), [*range(len(names))]
    kinds = [_kinds(one) for one in shares]
    traces = [
        go.Bar(
            orientation="h", y=places, x=[one[name] for one in kinds], name=words, width=0.62, textposition="none",
            customdata=[percent(one[name]) for one in kinds], hovertemplate=f"{words}: %{{customdata}}<extra></extra>",
            marker=marker_of(name, p),
        )
        for name, words in NAMES.items()
        if any(one[name] for one in kinds)
    ]  # fmt: skip
    fig = figure(_title(kinds, names), theme, 190 + 52 * len(names), traces, barmode="stack")
    fig.update_layout(legend_traceorder="normal", title_xref="container", title_pad_l=8, margin_r=84)
    for place, one in enumerate(kinds):
        fig.add_annotation(
            x=1,
            xref="paper",
            y=place,
            text=f"idle {percent(_idle(one))}",
            showarrow=False,
            xanchor="left",
            font={"color": p.ink},
        )
    fig.update_xaxes(
        tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1], range=[0, 1.005],
        title_text="share of the typical step,<br>all ranks together",
    )  # fmt: skip
    return fig.update_yaxes(
        tickvals=places, ticktext=run_labels(names, theme), range=[len(names) - 0.5, -0.5], showgrid=False
    )


def _kinds(shares: Mapping[str, float]) -> dict[str, float]:
    """With all that is computed in one."""
    kept = {name: shares[name] for name in NAMES if name in shares}
    return {"computing": sum(share for name, share in shares.items() if name not in kept), **kept}


def _idle(kinds: Mapping[str, float]) -> float:
    return sum(kinds[cause] for cause in CAUSES)


def _title(kinds: Sequence[Mapping[str, float]], names: Sequence[str]) -> str:
    idle = [_idle(one) for one in kinds]
    low, high = idle.index(min(idle)), idle.index(max(idle))
    if percent(idle[low]) == percent(idle[high]):
        return f"All stand idle for {percent(idle[0])} of their time"
    most = max(CAUSES, key=lambda cause: kinds[high][cause] - kinds[low][cause])
    why = PART_NAMES[most].split(" (")[0]
    said = f"{letter(names[low])} {percent(idle[low])}, {letter(names[high])} {percent(idle[high])}"
    return f"Share of time idle: {said}; largest difference: {why}"
