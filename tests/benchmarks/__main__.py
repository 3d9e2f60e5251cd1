"""The table of benchmarks: `python -m tests.benchmarks [--rounds 3] [--only peers runs] [--write]`.

Everything is a ratio to a peer that did the same on this machine in the same minute; absolute times depend on both.
"""

from __future__ import annotations

import argparse
import importlib
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from engine.machine import cores
from tests.benchmarks.row import HEADS, Row

PARTS = ("peers", "runs", "replay", "timeline")
FILE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
PACKAGES = ("torch", "numpy", "pyarrow", "plotly")


def machine() -> str:
    """This machine and the versions that count, in one line."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return f"{cores()} cores ({platform.machine()}), Python {platform.python_version()}, {versions}"


def document(rows: Iterable[Row], day: str, parts: Sequence[str]) -> str:
    """The table as Markdown. parts: those of PARTS that were measured."""
    lines = [
        "| " + " | ".join(cells) + " |" for cells in (HEADS, ("---",) * len(HEADS), *(row.cells() for row in rows))
    ]
    about = (
        "Ours and the peer's run in turn on the same machine, recording on; the figures are medians, and below 1 we are"
        "\nfaster. The peers are torch's own classes, torchrun, a plain Python loop over the same rows, and plotly."
    )
    command = (
        "make bench" if set(parts) == set(PARTS) else f"python -m tests.benchmarks --only {' '.join(parts)} --write"
    )
    return f"# Benchmarks\n\n{about}\n\nMade by `{command}` on {day}: {machine()}.\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--write", action="store_true", help="keep the table in docs/benchmarks.md")
    args = parser.parse_args()
    console, rows = Console(stderr=True), []
    for part in args.only:
        for row in importlib.import_module(f"tests.benchmarks.{part}").measured(args.rounds):
            console.print(*row.cells(), sep="  ")
            rows.append(row)
    table = Table(*HEADS, title=machine())
    for row in rows:
        table.add_row(*row.cells())
    Console().print(table)
    if args.write:
        FILE.write_text(document(rows, f"{datetime.now(UTC):%Y-%m-%d}", args.only), encoding="utf-8")


if __name__ == "__main__":
    main()
