"""Memory and communication of a run as tables for the terminal, measured beside predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lab.wording import RESIDENT, axis_name, nbytes, percent, unit

Row = dict[str, Any]

MAX_WIDTH, MIN_WIDTH = 120, 78
ROOMY = 90  # columns from which the memory table can afford wide gaps

CATEGORIES = (
    "params",
    "grads",
    "optimizer",
    "activations_peak",
    "gathered_peak",
    "buffers_peak",
    "total_peak",
)


def memory_unit(summary: Row) -> tuple[str, float]:
    """(unit, bytes in it) in which the highest peak of any rank reads best, for a whole table."""
    return unit(max((row["total_peak"] for row in summary["memory"]["per_rank"]), default=0))


def amount(value: float) -> str:
    """Three significant digits, more before the point if need be."""
    if 0 < value < 0.005:
        return "<0.01"
    return "0" if value == 0 else f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _table(gap: int = 2) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")


def memory(summary: Row, width: int = MAX_WIDTH, resident: Sequence[int] = ()) -> Group:
    """Bytes by category, measured above predicted; ranks that agree in all of it share a row.

    resident: bytes of each rank's process, shown below.
    """
    size = memory_unit(summary)[1]
    table = _table(gap=2 if width >= ROOMY else 1)
    known = bool(summary["memory"]["predicted_per_rank"])
    table.add_column("ranks")
    if known:
        table.add_column("")
    for name in CATEGORIES:
        table.add_column(name.removesuffix("_peak"), justify="right")
    predicted = {row["rank"]: row for row in summary["memory"]["predicted_per_rank"]}
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in summary["memory"]["per_rank"]:
        forecast = predicted.get(row["rank"], {})
        key = (row.get("stands_for", 1), *((row[name], forecast.get(name)) for name in CATEGORIES))
        groups.setdefault(key, []).append(row["rank"])
    for (like, *values), ranks in groups.items():
        named = spans_of(ranks) + (f" ×{like}" if like > 1 else "")
        table.add_row(named, *["measured"] * known, *(amount(value / size) for value, _ in values))
        if known:
            table.add_row("", "predicted", *(_prediction(wanted, value, size) for value, wanted in values))
    words = "params, grads, optimizer: held throughout; the others: most at any time"
    words = f"= the same, to the byte. {words}" if known else words
    if not resident:
        return Group(table, Text(words, style="dim"))
    least, most = nbytes(min(resident)), nbytes(max(resident))
    beside = f"resident: {least if least == most else f'{least} to {most}'} a process"
    return Group(table, Text(words, style="dim"), Text(beside), Text(RESIDENT, style="dim"))


def _prediction(wanted: int | None, measured: int, size: float) -> str:
    if wanted is None:
        return "–"
    return "=" if wanted == measured else f"≠ {amount(wanted / size)}"


def spans_of(ranks: list[int]) -> str:
    """[0, 1, 2, 5] as "0-2, 5"."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def communication(summary: Row) -> RenderableType:
    """Bytes by axis and operation, counted beside predicted, with the fraction of the time hidden."""
    rows = summary["communication"]
    if not rows:
        return Text("nothing: there is only one process")
    name, size = unit(max(row["wire_bytes"] for row in rows))
    table = _table()
    table.add_column("axis")
    table.add_column("operation", no_wrap=True)
    for heading in ("times", f"{name} sent", "predicted", "on the wire", "hidden"):
        table.add_column(heading, justify="right")
    said: set[str] = set()
    for row in rows:
        hidden = summary["overlap"].get(row["axis"])
        first = row["axis"] not in said
        said.add(row["axis"])
        table.add_row(
            axis_name(row["axis"]) if first else "",
            row["op"],
            f"{row['count']:,}",
            amount(row["logical_bytes"] / size),
            _prediction(row["predicted_bytes"], row["logical_bytes"], size),
            amount(row["wire_bytes"] / size),
            percent(hidden) if first and hidden is not None else "",
        )
    words = (
        "sent: what the algorithm moves (ring); on the wire: what the backend moves;"
        " hidden: share of its time that ran under computation"
    )
    return Group(table, Text(words, style="dim"))
