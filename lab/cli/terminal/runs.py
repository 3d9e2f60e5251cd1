"""The runs in the store as a list in a terminal."""

from __future__ import annotations

from textwrap import shorten

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.facade import Run
from lab.wording import fault_words

NEWEST = 20
MAX_REASON = 150  # characters


def print_runs(found: list[Run], console: Console, everything: bool = False) -> None:
    """Newest first; what is wrong with a run, on purpose or not, follows below the table, where there is room."""
    if not found:
        console.print("There are no runs yet: make one with `lab run` or `lab demo`.", highlight=False)
        return
    shown = found if everything else found[:NEWEST]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("run", no_wrap=True, overflow="fold")
    table.add_column("status")
    table.add_column("parity", justify="center")
    for name in ("loss", "s/step"):
        table.add_column(name, justify="right")
    for run in shown:
        parity = run.digest.get("parity")
        mark = "–" if parity is None else "✔" if parity else "✘"
        table.add_row(
            run.id,
            Text(run.status, style=_style(run)),
            mark,
            _number(run, "loss"),
            _number(run, "step_seconds"),
        )
    console.print(table)
    for run in shown:
        if bug := run.info.job.get("bug"):
            console.print(Text(f"{run.id} {fault_words(bug)}", style="yellow"), soft_wrap=True)
        if run.message:
            why = shorten(run.message.splitlines()[0], MAX_REASON, placeholder=" …")
            console.print(Text(f"{run.id} {run.status}: {why}", style="dim"), soft_wrap=True)
    if len(shown) < len(found):
        console.print(f"and {len(found) - len(shown)} older ones: lab runs --all", style="dim", highlight=False)


def _style(run: Run) -> str:
    return {"finished": "green", "running": "cyan", "queued": "cyan", "stopped": "yellow", "simulated": "blue"}.get(
        run.status, "bold red"
    )


def _number(run: Run, name: str) -> str:
    value = run.digest.get(name)
    return "" if value is None else f"{value:.4f}" if name == "loss" else f"{value:.3f}"
