"""`lab bugs`: the faults that can be put into a run, and what shows each."""

from __future__ import annotations

import json
from argparse import Namespace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.job.bugs import BUGS, Bug
from engine.job.job import Job
from lab.cli.commands.run import OK, console
from lab.wording import command_line, unseen_words


def bugs(args: Namespace) -> int:
    if args.json:
        print(json.dumps({"bugs": [_as_json(bug) for bug in BUGS]}))
        return OK
    _print(console())
    return OK


def _as_json(bug: Bug) -> dict[str, object]:
    """seen_in: null where the comparison with one process finds the fault."""
    return {
        "name": bug.name, "sentence": bug.sentence, "options": dict(bug.options), "first": bug.first,
        "seen_in": bug.seen_in or None,
    }  # fmt: skip


def _print(screen: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0), header_style="dim")
    table.add_column("bug", no_wrap=True)
    table.add_column("what is done wrong, where it shows first, and a job that shows it", overflow="fold")
    for bug in BUGS:
        told = Text(f"{bug.sentence}\n").append(f"First seen: {bug.first}.\n")
        if bug.seen_in:
            told.append(f"{unseen_words(bug.name)}\n")
        told.append(command_line(Job.from_options(bug=bug.name, **bug.options)), style="dim")
        table.add_row(Text(bug.name, style="bold"), told)
    screen.print(table, highlight=False)
