"""A schedule slot by slot: what each pipeline rank does in each unit of time, as the charts of the papers draw it.

A slot is the forward of one block. A backward takes two, each part of a split one takes one, and embedding, head,
optimizer and messages take none (`engine.program.dryrun.unit_cost`): the costs under which bubble formulas hold
exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Protocol

from engine.program.dryrun import dry_run
from engine.program.kinds import KINDS
from engine.program.program import Action, Program
from lab.views.figures.style.kind_colour import kind_colour
from lab.views.figures.style.palette import PALETTES, Palette, ink_on

IDLE = "."


class HasProgram(Protocol):
    @property
    def program(self) -> Program: ...


@dataclass(frozen=True, repr=False)
class SlotTable:
    """rows[rank][slot] is "F0" for the forward of micro-batch 0, "B0", "I0", "W0" or "R0" likewise, "." for idle.

    Where a rank holds several chunks of the model, the chunk is named too: "F0c1".
    """

    rows: tuple[tuple[str, ...], ...]

    @property
    def slots(self) -> int:
        """How many slots the step takes."""
        return len(self.rows[0])

    @property
    def idle(self) -> int:
        """Idle cells of all ranks."""
        return sum(row.count(IDLE) for row in self.rows)

    @property
    def bubble(self) -> Fraction:
        """Idle ÷ total cells."""
        return Fraction(self.idle, max(self.slots * len(self.rows), 1))

    def order(self, rank: int) -> list[str]:
        """What the rank does, one after the other."""
        return [word for word, _ in groupby(word for word in self.rows[rank] if word != IDLE)]

    def differences(self, chart: str) -> list[tuple[int, int, str, str]]:
        """(rank, slot, here, there) wherever `chart`, text as of `str`, says something else."""
        drawn = [line.split() for line in chart.split("\n") if line.strip()]
        width = max([self.slots, *map(len, drawn)])
        count = max(len(self.rows), len(drawn))
        here, there = _padded(self.rows, count, width), _padded(drawn, count, width)
        return [
            (z, t, here[z][t], there[z][t]) for z in range(count) for t in range(width) if here[z][t] != there[z][t]
        ]

    def __str__(self) -> str:
        size = max(len(word) for row in self.rows for word in row)
        return "\n".join(" ".join(f"{word:<{size}}" for word in row).rstrip() for row in self.rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        numbers = "".join(f"<th scope='col'>{t + 1}</th>" for t in range(self.slots))
        body = "".join(f"<tr><th scope='row'>rank {z}</th>{''.join(_cells(r))}</tr>" for z, r in enumerate(self.rows))
        total = self.slots * len(self.rows)
        words = f"{self.slots} slots; {self.idle} of {total} cells idle: bubble {float(self.bubble):.1%}."
        region = "class='lab-slots' role='region' tabindex='0' aria-label='Slots of the schedule'"
        return (
            f"<div {region}>{_style()}<table><caption>{words} {_legend(self.rows)}</caption>"
            f"<thead><tr><th scope='col'>slot</th>{numbers}</tr></thead><tbody>{body}</tbody></table></div>"
        )


def slot_table(run: HasProgram) -> SlotTable:
    """The program of a run, or of a simulation, at unit costs."""
    program = run.program
    walk = dry_run(program)
    rows = [[IDLE] * int(walk.makespan) for _ in program.lanes]
    chunks = [sorted({a.stage for a in lane if a.stage is not None and a.kind.cost}) for lane in program.lanes]
    for span in walk.spans:
        for t in range(int(span.start), int(span.end)):
            rows[span.pp_rank][t] = _word(span.action, chunks[span.pp_rank])
    return SlotTable(tuple(map(tuple, rows)))


def _word(action: Action, stages: list[int]) -> str:
    several = len(stages) > 1 and action.stage is not None
    chunk = f"c{stages.index(action.stage)}" if several and action.stage is not None else ""
    return f"{action.kind.letter}{action.microbatch}{chunk}"


def _padded(rows: tuple[tuple[str, ...], ...] | list[list[str]], count: int, width: int) -> list[list[str]]:
    filled = [[*row, *[IDLE] * (width - len(row))] for row in rows]
    return filled + [[IDLE] * width for _ in range(count - len(filled))]


def _cells(row: tuple[str, ...]) -> Iterator[str]:
    """A cell for every stretch of one thing, as wide as its slots."""
    for word, same in groupby(row):
        wide = len(list(same))
        label = "<span>idle</span>" if word == IDLE else word
        yield f"<td colspan='{wide}' class='{'idle' if word == IDLE else word[0]}'>{label}</td>"


def _legend(rows: tuple[tuple[str, ...], ...]) -> str:
    seen = {word[0] for row in rows for word in row}
    letters = [f"{kind.letter} {kind.words}" for kind in KINDS if kind.cost and kind.letter in seen]
    return f"{', '.join(letters)}; the number is the micro-batch; hatched is idle."


def _rules(palette: Palette, where: str) -> str:
    hatch = f"repeating-linear-gradient(135deg,{palette.idle} 0 1px,{palette.paper} 1px 6px)"
    fills = [(kind.letter, kind_colour(kind, palette)) for kind in KINDS if kind.cost]
    return f"{where}.lab-slots td.idle{{background:{hatch}}}" + "".join(
        f"{where}.lab-slots td.{letter}{{background:{fill};color:{ink_on(fill)}}}" for letter, fill in fills
    )


_LOOK = (
    "<style>.lab-slots{overflow-x:auto;padding:2px}"
    ".lab-slots table{border-collapse:separate;border-spacing:1px;font:12px system-ui,sans-serif;margin:0}"
    ".lab-slots caption{text-align:left;font-size:13px;padding:0 0 6px;caption-side:top;color:inherit}"
    ".lab-slots table tr{background:none}"
    ".lab-slots table{table-layout:fixed;width:auto}.lab-slots caption{width:max-content;max-width:60em}"
    ".lab-slots table :is(th,td){text-align:center!important}"  # JupyterLab sets tables of numbers to the right
    ".lab-slots table th{font-weight:400;padding:1px;white-space:nowrap}"
    ".lab-slots thead th{width:2.6em;min-width:2.6em}.lab-slots thead th:first-child{width:4.5em}"
    ".lab-slots table tbody th{padding-right:6px}"
    ".lab-slots table td{padding:5px 1px;border-radius:2px}"
    ".lab-slots td.idle span{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}"
)


def _style() -> str:
    return (
        f"{_LOOK}{_rules(PALETTES['light'], '')}{_rules(PALETTES['dark'], 'body[data-jp-theme-light=false] ')}</style>"
    )
