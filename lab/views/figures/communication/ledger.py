"""The ledger of one rank: bytes by axis and operation, with the number of calls and the time they took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import plotly.graph_objects as go

from lab.analysis.ledger import LedgerRow
from lab.views.figures.communication.communication import grouped_bars, operation_name
from lab.views.figures.style.palette import Theme, empty
from lab.wording import axis_name, nbytes, percent, seconds


def ledger_figure(rows: Sequence[LedgerRow], rank: int, *, theme: Theme = "light", times: bool = True) -> go.Figure:
    """What the algorithm moves, what the formula says, and what the wire carries, of each operation in a step.

    times: with the seconds that each operation took, waiting for others included.
    """
    if not rows:
        return empty(f"Ledger of rank {rank}", f"Rank {rank} sent nothing: this plan has one rank.", theme)
    names = [f"{operation_name(row)}<br>×{row['count']}{took(row) if times else ''}" for row in rows]
    return grouped_bars(rows, names, ledger_title(rows, rank), theme)


def took(row: LedgerRow) -> str:
    """How long the row took, to follow other words."""
    return f", {seconds(row['seconds'])}"


def ledger_title(rows: Sequence[LedgerRow], rank: int) -> str:
    """The bytes in all, and the axis with most of them."""
    by_axis: Counter[str] = Counter()
    for row in rows:
        by_axis[row["axis"]] += row["logical_bytes"]
    total = sum(by_axis.values())
    axis, most = by_axis.most_common(1)[0]
    share = f", {percent(most / total)} on the {axis_name(axis)} axis" if total else ""
    calls = sum(row["count"] for row in rows)
    return f"Rank {rank} moves {nbytes(total)} in {calls} calls a step{share}"
