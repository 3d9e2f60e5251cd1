"""The runs in the store as a list in a terminal."""

from __future__ import annotations

from textwrap import shorten

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from lab.facade import Run
from lab.wording import fault_words

NEWEST = 20
NARROW = 68  # columns; with fewer there is no room for all
MAX_REASON = 150  # characters


def print_runs(found: list[Run], console: Console, everything: bool = False) -> None:
    """Newest first; what is wrong with a run, on purpose or not, follows below the table, where there is room."""
    if not found:
        console.print("There are no runs yet: make one with `lab run` or `lab demo`.", highlight=False)
        return
    shown = found if everything else found[:NEWEST]
    console.print(_table(shown, narrow=console.width < NARROW))
    for run in shown:
        if bug := run.info.job.get("bug"):
            console.print(Text(f"{run.id} {fault_words(bug)}", style="yellow"), soft_wrap=True)
        if run.message:
            why = shorten(run.message.splitlines()[0], MAX_REASON, placeholder=" …")
            console.print(Text(f"{run.id} {run.status}: {why}", style="dim"), soft_wrap=True)
    if len(shown) < len(found):
        console.print(f"and {len(found) - len(shown)} older ones: lab runs --all", style="dim", highlight=False)


def _table(shown: list[Run], narrow: bool) -> Table:
    """narrow: how a run ended comes first, and its name takes the lines that it needs; numbers are left out."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("status", "parity", "run") if narrow else ("run", "status", "parity", "loss", "s/step"):
        number = name in ("loss", "s/step")
        how: JustifyMethod = "right" if number else "center" if name == "parity" else "left"
        table.add_column(name, justify=how, no_wrap=not number and not (narrow and name == "run"), overflow="fold")
    for run in shown:
        ended = Text(run.status, style=_style(run)), run.badge.mark
        numbers = _number(run, "loss"), _number(run, "step_seconds")
        table.add_row(*((*ended, run.id) if narrow else (run.id, *ended, *numbers)))
    return table


def _style(run: Run) -> str:
    return {"finished": "green", "running": "cyan", "queued": "cyan", "stopped": "yellow", "simulated": "blue"}.get(
        run.status, "bold red"
    )


def _number(run: Run, name: str) -> str:
    value = run.digest.get(name)
    return "" if value is None else f"{value:.4f}" if name == "loss" else f"{value:.3f}"
