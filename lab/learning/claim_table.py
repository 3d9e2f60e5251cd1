"""Claims as they are told and what became of them: a verdict for each, and all of them as one table."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

MARKS = {"holds": "✔", "holds under conditions": "◐", "wrong": "✘", "open": "○"}
"""The verdicts there are, each with a mark, so that none is told by colour alone."""


@dataclass(frozen=True)
class Decided:
    """One claim: its name, what is told, the verdict, and the numbers behind it in one sentence."""

    name: str
    told: str
    verdict: str
    because: str

    @property
    def label(self) -> str:
        return f"{MARKS[self.verdict]} {self.verdict}"

    def __repr__(self) -> str:
        return f"{self.name} {self.label}: {self.because}"

    def _repr_html_(self) -> str:
        badge = f'<strong style="white-space:nowrap">{html.escape(self.label)}</strong>'
        return f'<p style="margin:0;line-height:1.5">{html.escape(self.name)} {badge}. {html.escape(self.because)}</p>'


@dataclass
class Claims:
    """Collects verdicts. Called with a claim it keeps and shows it; shown itself it is the table of all."""

    decided: dict[str, Decided] = field(default_factory=dict)

    def __call__(self, name: str, told: str, verdict: str, because: str) -> Decided:
        """Keeps the verdict on claim `name`, in place of an earlier one. Raises `ValueError` for an unknown verdict."""
        if verdict not in MARKS:
            raise ValueError(f"{verdict!r} is no verdict: use {', '.join(MARKS)}.")
        self.decided[name] = Decided(name, told, verdict, because)
        return self.decided[name]

    def sorted(self) -> list[Decided]:
        """By name, C2 before C10."""
        return sorted(self.decided.values(), key=lambda one: (len(one.name), one.name))

    def count(self, verdict: str) -> int:
        """How many claims came out as `verdict`."""
        return sum(one.verdict == verdict for one in self.decided.values())

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.sorted()))

    def _repr_html_(self) -> str:
        caption = ", ".join(f"{self.count(verdict)} {mark} {verdict}" for verdict, mark in MARKS.items())
        heads = "".join(
            f'<th scope="col" style="width:{width};text-align:left">{head}</th>' for head, width in _COLUMNS.items()
        )
        rows = "".join(map(_row, self.sorted()))
        return (
            f'<table style="width:100%;table-layout:fixed"><caption {_LEFT}>{caption}</caption>'
            f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
        )


_COLUMNS = {"Claim": "4em", "As told": "26%", "Verdict": "12em", "Decided by": "auto"}
_LEFT = 'style="text-align:left;vertical-align:top"'


def _row(one: Decided) -> str:
    cells = "".join(f"<td {_LEFT}>{html.escape(text)}</td>" for text in (one.told, one.label, one.because))
    return f'<tr><th scope="row" {_LEFT}>{html.escape(one.name)}</th>{cells}</tr>'
