"""Loss curves of several runs, and how far each is from one process, with the band inside which it counts as equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from lab.views.figures.style.palette import Theme, empty, figure, palette
from lab.views.figures.style.run_styles import RunLook, letter, run_looks
from lab.wording import LOSS_LIMIT, power

Floats = NDArray[np.float64]
_ROOM = 0.05  # of loss, above and below the curves at least


@dataclass(frozen=True)
class Losses:
    """Of one run: losses[step], and those of one process at the same steps, NaN where there was no such run.

    limit: how far they may be apart, relative, at each step (`lab.verdict`); state: of the run's verdict."""

    step: Floats
    loss: Floats
    reference: Floats
    limit: Floats
    state: str = "none"

    @property
    def off(self) -> Floats:
        """(loss − one process) ÷ one process, NaN where either is no number."""
        off = self.loss / self.reference - 1
        return np.where(np.isfinite(off), off, np.nan)

    @property
    def beyond(self) -> float:
        """The largest |Δ| ÷ what is allowed; 0 if none can be stated."""
        return float(np.nanmax(np.abs(self.off) / self.limit, initial=0.0))

    @property
    def lost(self) -> bool:
        """Whether a loss is no number where that of one process is: no difference can be drawn, and none is larger."""
        return bool((~np.isfinite(self.loss) & np.isfinite(self.reference)).any())


def losses_figure(runs: Sequence[Losses], names: Sequence[str], *, theme: Theme = "light") -> go.Figure:
    """Curves that lie on each other stay visible: the first is drawn widest, with the largest symbols, each later one
    narrower on top of it, and each has a dash and a symbol of its own.
    """
    shown = [i for i, run in enumerate(runs) if np.isfinite(run.loss).any()]
    if not shown:
        return empty("Loss", "None of these runs computed a loss: nothing was trained.", theme)
    p, looks = palette(theme), run_looks(len(runs), theme)
    traces = [_curve(runs[i].step, runs[i].loss, names[i], looks[i], len(runs) - 1 - i, "y") for i in shown]
    traces += _references(runs, p.ink)
    judged = [i for i in shown if np.isfinite(runs[i].off).any()]
    traces += [_curve(runs[i].step, runs[i].off, names[i], looks[i], len(runs) - 1 - i, "y2") for i in judged]
    fig = figure(_title(runs, names, judged, shown), theme, 600 if judged else 400, traces)
    fig.update_xaxes(title_text="step", dtick=1 if max(len(run.step) for run in runs) <= 12 else None)
    fig.update_layout(
        yaxis={"title": {"text": "loss"}, "domain": [0.46, 1] if judged else [0, 1], "range": _range(runs)}
    )
    return _with_band(fig, [runs[i] for i in judged], theme) if judged else fig


def _range(runs: Sequence[Losses]) -> list[float]:
    """Wide enough that differences nobody should look at stay small."""
    every = np.concatenate([run.loss[np.isfinite(run.loss)] for run in runs])
    low, high = float(every.min()), float(every.max())
    room = max(0.08 * (high - low), _ROOM)
    return [low - room, high + room]


def _curve(x: Floats, y: Floats, name: str, look: RunLook, below: int, axis: str) -> go.Scatter:
    """below: how many curves come on top of it."""
    value = "%{y:.4f}" if axis == "y" else "%{y:.1e} of one process off"
    return go.Scatter(
        x=x, y=y, name=name, yaxis=axis, legendgroup=name, showlegend=axis == "y", mode="lines+markers",
        line={"color": look.colour, "dash": look.dash, "width": 2.5 + 2 * below},
        marker={"symbol": f"{look.symbol}-open", "size": 8 + 4 * below, "line": {"width": 2, "color": look.colour}},
        hovertemplate=f"{name}, step %{{x}}: {value}<extra></extra>",
    )  # fmt: skip


def _references(runs: Sequence[Losses], ink: str) -> list[go.Scatter]:
    """The different one-process runs there are; runs of one model and training share one."""
    different = {run.reference.tobytes(): run for run in runs if np.isfinite(run.reference).any()}
    return [
        go.Scatter(
            x=run.step, y=run.reference, name="one process", legendgroup="one process", showlegend=i == 0, mode="lines",
            line={"color": ink, "width": 1.2, "dash": "dot"},
            hovertemplate="one process, step %{x}: %{y:.4f}<extra></extra>",
        )
        for i, run in enumerate(different.values())
    ]  # fmt: skip


def _with_band(fig: go.Figure, judged: Sequence[Losses], theme: Theme) -> go.Figure:
    """The lower picture: differences from one process, inside the band or not."""
    p = palette(theme)
    most = max(LOSS_LIMIT, max(float(np.nanmax(np.abs(run.off))) for run in judged))
    fig.add_hrect(y0=-LOSS_LIMIT, y1=LOSS_LIMIT, yref="y2", fillcolor=p.idle, opacity=0.2, line_width=0)
    for run in judged:
        if (run.limit > LOSS_LIMIT).any():
            most = max(most, float(run.limit.max()))
            for sign in (-1, 1):
                fig.add_scatter(
                    x=run.step, y=sign * run.limit, yaxis="y2", mode="lines", showlegend=False, hoverinfo="skip",
                    line={"color": p.faint, "width": 1, "dash": "dot"},
                )  # fmt: skip
    for edge in (-LOSS_LIMIT, 0.0, LOSS_LIMIT):
        line = {"color": p.faint, "width": 1, "dash": "dash" if edge else "solid"}
        fig.add_shape(type="line", xref="x domain", x0=0, x1=1, yref="y2", y0=edge, y1=edge, line=line)
    fig.add_annotation(
        xref="x domain", x=1, yref="y2", y=LOSS_LIMIT, text=f"counts as equal: ±{power(LOSS_LIMIT)}", showarrow=False,
        xanchor="right", yanchor="bottom", font={"color": p.ink, "size": 11},
    )  # fmt: skip
    fig.update_layout(
        yaxis2={
            "title": {"text": "Δ ÷ one process"}, "domain": [0, 0.38], "anchor": "x",
            "range": [-1.35 * most, 1.35 * most], "tickvals": [-most, 0, most], "zeroline": False,
            "ticktext": [f"−{power(most)}", "0", f"+{power(most)}"],
        }
    )  # fmt: skip
    return fig.update_xaxes(anchor="y2")


def _title(runs: Sequence[Losses], names: Sequence[str], judged: Sequence[int], shown: Sequence[int]) -> str:
    if lost := [name for name, run in zip(names, runs, strict=True) if run.lost]:
        return f"A loss of {letter(lost[0])} is no number where that of one process is"
    if not judged:
        last = {i: float(runs[i].loss[-1]) for i in shown if np.isfinite(runs[i].loss[-1])}
        if not last:
            return "No run ends with a loss that is a number"
        best = min(last, key=lambda i: last[i])
        return f"{letter(names[best])} ends with the lowest loss, {last[best]:.4f}; none was compared with one process"
    off = {i: float(np.nanmax(np.abs(runs[i].off))) for i in judged}
    worst = max(off, key=lambda i: off[i])
    which = "Every loss equals" if len(judged) == len(runs) else "Every loss that was compared equals"
    if not off[worst]:
        return f"{which} that of one process to the last bit"
    if off[worst] <= LOSS_LIMIT:
        return f"{which} that of one process to {power(off[worst])}; {power(LOSS_LIMIT)} is allowed"
    beyond = {i: runs[i].beyond for i in judged if runs[i].beyond > 1}
    if not beyond:
        return f"Losses are within {power(off[worst])} of one process, no further than rounding explains"
    worst = max(beyond, key=lambda i: beyond[i])
    words = f"{letter(names[worst])} is off one process by {power(off[worst])}"
    if runs[worst].state == "unmeasured":
        return f"{words}; its rounding floor was not measured"
    return f"{words}; {power(off[worst] / beyond[worst])} is allowed"
