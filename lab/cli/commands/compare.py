"""`lab compare`: two to six runs side by side in a terminal, against the first of them."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.job.errors import UserError
from lab.cli.commands.run import OK, console
from lab.cli.open_runs import opened_runs
from lab.facade import Run
from lab.store.stored_run import RunCorrupt

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from lab.analysis.comparison.lines import Line

_STYLES = {"better": "green", "worse": "bold red"}
MAX_WIDTH = 120


def compare(args: Namespace) -> int:
    from lab.analysis.comparison import lines as comparing
    from lab.analysis.comparison.text import explain

    with opened_runs(*args.runs) as named:
        try:
            comparing.refuse(named)
        except RunCorrupt:
            raise
        except ValueError as error:
            raise UserError(str(error)) from error
        runs = named if args.cluster is None else [run.replay(args.cluster) for run in named]
        if args.json:
            print(json.dumps(_as_json(named, runs, explain(runs), args.cluster), allow_nan=False))
            return OK
        screen = console()
        screen.width = min(screen.width, MAX_WIDTH)
        for part in _parts(named, runs, explain(runs)):
            screen.print(part, highlight=False)
        return OK


def _as_json(named: Sequence[Run], runs: Sequence[Run], sentences: list[str], cluster: str | None) -> dict[str, Any]:
    from lab.analysis.comparison import lines as comparing

    return {
        "runs": [run.id for run in named],
        "status": [run.status for run in named],
        "cluster": cluster,
        "settings": {name: list(values) for name, values in comparing.settings(runs).items()},
        "one_process": [run.badge.state for run in named],
        "lines": comparing.table(runs),
        "sentences": sentences,
    }


def _parts(named: Sequence[Run], runs: Sequence[Run], sentences: Sequence[str]) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    from lab.analysis.comparison import lines as comparing

    yield from (Text.assemble((letter, "bold"), f"  {_told(*pair)}") for letter, pair in _lettered(named, runs))
    differ = comparing.settings(runs)
    if differ:
        yield Padding(_settings(differ, len(runs)), (1, 0, 0, 0))
    came_out = _lines(comparing.lines(runs), [badge.short or "–" for badge in comparing.verdicts(named)], len(runs))
    yield Padding(came_out, (1, 0, 0, 0))
    yield Text(comparing.MARKS_IN_WORDS, style="dim")
    yield Text("")
    yield from (Text(sentence) for sentence in sentences)


def _lettered(named: Sequence[Run], runs: Sequence[Run]) -> Iterator[tuple[str, tuple[Run, Run]]]:
    from lab.analysis.comparison.lines import LETTERS

    yield from zip(LETTERS, zip(named, runs, strict=True), strict=False)


def _told(named: Run, run: Run) -> str:
    """Which run it is, and what its numbers are."""
    where = f"simulated on {run.summary['cluster']}" if run.status == "simulated" else "measured"
    return f"{named.id}  {'' if named.status in ('finished', 'simulated') else named.status + ', '}{where}"


def _settings(differ: dict[str, tuple[Any, ...]], count: int) -> Table:
    table = _table("set differently", count)
    for name, values in differ.items():
        table.add_row(name, *("none" if value in (None, "") else str(value) for value in values))
    return table


def _lines(lines: Sequence[Line], verdicts: Sequence[str], count: int) -> Table:
    from lab.analysis.comparison.lines import AGAINST_ONE_PROCESS

    table = _table("came out", count)
    if verdicts:
        table.add_row(AGAINST_ONE_PROCESS, *verdicts)
    for line in lines:
        table.add_row(line.name, *(_cell(line, i) for i in range(count)))
    return table


def _table(head: str, count: int) -> Table:
    from rich.table import Table

    from lab.analysis.comparison.lines import LETTERS

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(head, overflow="fold")
    for letter in LETTERS[:count]:
        table.add_column(letter, justify="right")
    return table


def _cell(line: Line, i: int) -> Text:
    """The value, and below it how it differs from the first run's."""
    from rich.text import Text

    from lab.analysis.comparison.lines import MARKS

    value, change, judged = line.values[i], line.change(i), line.judged(i)
    told = Text("–" if value is None else line.words(value))
    if not change:
        return told
    return told.append(f"\n{change} {MARKS.get(judged, '')}".rstrip(), style=_STYLES.get(judged, "dim"))
