"""The checks of `lab doctor` in a terminal, one after the other as they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Check:
    """One thing looked at. `advice` says what to do and is empty where all is well."""

    name: str
    found: str
    advice: str = ""

    @property
    def ok(self) -> bool:
        return not self.advice


def print_check(check: Check, console: Console) -> None:
    """One line: whether it is well, what was found, and what to do if it is not."""
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 1))
    line.add_column(no_wrap=True)
    line.add_column(min_width=13, no_wrap=True)
    line.add_column(overflow="fold")
    sign = Text("✔", style="green") if check.ok else Text("✘", style="bold red")
    line.add_row(sign, check.name, check.found)
    if check.advice:
        line.add_row("", "", Text(f"→ {check.advice}", style="bold"))
    console.print(line, highlight=False)
