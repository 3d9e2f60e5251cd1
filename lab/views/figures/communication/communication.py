"""What was sent: bytes by axis and operation beside the prediction, and between which ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from engine.prediction.replay.rows import named
from lab.views.figures.style.palette import Theme, empty, figure, hatched, palette
from lab.views.figures.style.selected_rank import outline, pointed, recorded
from lab.wording import axis_name, nbytes

_MOST_CELLS_WITH_TEXT = 12 * 12
_WORDS = {
    "send_act": "activations sent",
    "recv_act": "activations received",
    "send_grad": "gradients sent",
    "recv_grad": "gradients received",
}


def operation_name(row: Mapping[str, Any]) -> str:
    """ "tensor all-reduce", "pipeline activations sent"."""
    return f"{axis_name(row['axis'])} {_WORDS.get(row['op'], row['op'].replace('_', '-'))}"


def communication_figure(rows: Sequence[Mapping[str, Any]], *, theme: Theme = "light") -> go.Figure:
    """Bytes a rank moves in a step, by axis and operation; rows as in the summary's `communication`."""
    if not rows:
        return empty("Communication", "Nothing was sent: this plan has one rank, or no step was completed.", theme)
    names = [f"{operation_name(row)} ×{row['count']}" for row in rows]
    return grouped_bars(rows, names, communication_title(rows), theme)


def grouped_bars(rows: Sequence[Mapping[str, Any]], names: list[str], title: str, theme: Theme) -> go.Figure:
    """Up to three bars for each row: by the algorithm, by the formula, on the wire."""
    p = palette(theme)
    plain = {"marker": {"color": p.blue}}
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("counted, by the algorithm", "logical_bytes", plain),
        ("predicted by the formula", "predicted_bytes", {"marker": hatched(p.orange, theme, "\\")}),
        ("on the wire", "wire_bytes", {"marker": hatched(p.idle, theme)}),
    ]
    traces = []
    for label, key, style in kinds:
        values = [row.get(key) for row in rows]
        if any(value is not None for value in values):
            traces.append(_bars(label, names, values, style, p.ink))
    fig = figure(title, theme, 110 + 74 * len(rows), traces, bargap=0.25)
    fig.update_layout(legend_traceorder="normal", barmode="group")
    fig.update_xaxes(title_text="bytes per step", rangemode="tozero", tickformat="~s", range=[0, 1.35 * _most(rows)])
    return fig.update_yaxes(autorange="reversed", showgrid=False)


def _bars(label: str, names: list[str], values: list[Any], style: dict[str, Any], ink: str) -> go.Bar:
    words = ["not known" if v is None else nbytes(v) for v in values]
    return go.Bar(
        orientation="h",
        y=names,
        x=values,
        name=label,
        text=words,
        textposition="outside",
        cliponaxis=False,
        textfont={"color": ink, "size": 11},
        hovertemplate=f"%{{y}}<br>{label}: %{{text}}<extra></extra>",
        **style,
    )


def _most(rows: Sequence[Mapping[str, Any]]) -> float:
    return max(
        (row.get(k) or 0 for row in rows for k in ("logical_bytes", "wire_bytes", "predicted_bytes")),
        default=1,
    )


def communication_title(rows: Sequence[Mapping[str, Any]]) -> str:
    """rows: of `summary["communication"]`, at least one; bytes are logical ones, of one rank and step."""
    most = max(rows, key=lambda row: row["logical_bytes"])
    known = [row for row in rows if row.get("predicted_bytes") is not None]
    right = sum(row["predicted_bytes"] == row["logical_bytes"] for row in known)
    title = f"Most bytes: {operation_name(most)}, {nbytes(most['logical_bytes'])} per rank and step"
    return f"{title}; {right} of {len(known)} predictions exact" if known else title


def matrix_figure(matrix: NDArray[np.int64], *, theme: Theme = "light", selected: int | None = None) -> go.Figure:
    """Bytes from rank to rank in a step (see `analysis.communication_matrix`); blank where nothing was
    sent.
    """
    if not matrix.any():
        return empty("Who sends to whom", "Nothing was sent in this step.", theme)
    names = [f"rank {rank}" for rank in range(len(matrix))]
    mine = None if selected is None else names[selected]
    return _heat(matrix, names, names, theme, (mine, mine))


def links_figure(
    sent: Mapping[tuple[int, int], int],
    stands_for: Mapping[int, int],
    *,
    theme: Theme = "light",
    selected: int | None = None,
) -> go.Figure:
    """The same where only some ranks are recorded: a row for each of these, a column for each rank they send to."""
    if not sent:
        return empty("Who sends to whom", "Nothing was sent in this step.", theme)
    sources, targets = sorted({a for a, _ in sent}), sorted({b for _, b in sent})
    matrix = np.array([[sent.get((a, b), 0) for b in targets] for a in sources], np.int64)
    rows = {rank: named(rank, sum(like == rank for like in stands_for.values())) for rank in sources}
    like = recorded(selected, stands_for)
    chosen = (None if like is None else rows.get(like), f"rank {selected}")
    return _heat(matrix, [*rows.values()], [f"rank {rank}" for rank in targets], theme, chosen)


def _heat(
    matrix: NDArray[np.int64],
    sources: list[str],
    targets: list[str],
    theme: Theme,
    selected: tuple[str | None, str | None],
) -> go.Figure:
    """selected: the row and the column to be framed, if there are such."""
    source, target = np.unravel_index(int(matrix.argmax()), matrix.shape)
    busiest = f"{sources[source]} to {targets[target]}"
    title = f"Busiest link: {busiest}, {nbytes(matrix.max())} per step"
    few = matrix.size <= _MOST_CELLS_WITH_TEXT  # with the bytes in each cell nobody needs the scale
    words = [[nbytes(v) if v else "" for v in row] for row in matrix.tolist()]
    heat = go.Heatmap(
        z=np.where(matrix > 0, matrix, np.nan), colorscale="Cividis", zmin=0, text=words, xgap=1, ygap=1,
        texttemplate="%{text}" if few else None, textfont={"size": 10}, showscale=not few,
        x=targets, y=sources, hovertemplate="%{y} to %{x}: %{text}<extra></extra>", hoverongaps=False,
        colorbar={"title": {"text": "bytes", "side": "right"}, "tickformat": "~s", "thickness": 12},
    )  # fmt: skip
    fig = figure(title, theme, 420, [heat])
    row = sources.index(selected[0]) if selected[0] in sources else None
    column = targets.index(selected[1]) if selected[1] in targets else None
    if row is not None:
        outline(fig, theme, None, (row - 0.5, row + 0.5))
    if column is not None:
        outline(fig, theme, (column - 0.5, column + 0.5), None)
    fig.update_xaxes(
        title_text="to rank", type="category", **_some(targets, column), showgrid=False, zeroline=False, side="top",
        constrain="domain",
    )  # fmt: skip
    return fig.update_yaxes(
        title_text="from rank", type="category", **_some(sources, row), autorange="reversed", showgrid=False,
        zeroline=False, scaleanchor="x" if sources == targets else None, constrain="domain",
    )  # fmt: skip


def _some(names: list[str], selected: int | None) -> dict[str, list[str]]:
    """Ticks at about 16 of them at most, evenly spaced, and at the selected one."""
    every = max(1, len(names) // 16)
    shown = [name for i, name in enumerate(names) if i % every == 0 or i == selected]
    return {
        "tickvals": shown,
        "ticktext": [pointed(n) if selected is not None and n == names[selected] else n for n in shown],
    }
