"""What a check says: passed or not, why in words, and the numbers behind it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """The answer of `lab.check`.

    words: what is right or what is wrong, and where; never the solution. details: numbers by name; "score" holds rows
    of a table, "traceback" the learner's own lines, "output" what the answer printed.
    """

    exercise: str
    passed: bool
    words: str
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        return f"{'✔ passed' if self.passed else '✘ not yet'}: {self.exercise}"

    def __repr__(self) -> str:
        parts = [self.headline, self.words]
        parts += [text_table(self.details["score"])] if "score" in self.details else []
        parts += [f"{name}:\n{self.details[key]}" for key, name in _EXTRAS.items() if key in self.details]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        colour = "#0072B2" if self.passed else "#D55E00"
        first, _, rest = self.words.partition("\n")
        parts = [f"<strong>{html.escape(self.headline)}</strong><br>{html.escape(first)}"]
        parts += [_pre(rest)] if rest else []
        parts += [html_table(self.details["score"])] if "score" in self.details else []
        parts += [f"<br>{name}:{_pre(self.details[key])}" for key, name in _EXTRAS.items() if key in self.details]
        style = f"border-left:4px solid {colour};padding:2px 0 2px 10px;line-height:1.6;max-width:64em"
        return f'<div role="status" style="{style}">{"".join(parts)}</div>'


_EXTRAS = {"traceback": "Where it happened", "output": "What it printed"}


def text_table(rows: Sequence[Row]) -> str:
    """Columns under the keys of the first row, numbers to the right."""
    heads = list(rows[0])
    cells = [heads, *([_cell(row[head]) for head in heads] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    sides = [">" if isinstance(rows[0][head], (int, float)) else "<" for head in heads]
    return "\n".join(
        "  ".join(f"{text:{side}{width}}" for text, side, width in zip(line, sides, widths, strict=True)).rstrip()
        for line in cells
    )


def html_table(rows: Sequence[Row]) -> str:
    """The rows as HTML, numbers to the right; heads are the keys of the first row."""
    heads = "".join(f'<th scope="col" style="{_align(rows[0][head])}">{html.escape(head)}</th>' for head in rows[0])
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_align(value)}">{html.escape(_cell(value))}</td>' for value in row.values())
        + "</tr>"
        for row in rows
    )
    return f'<table style="margin:6px 0"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _align(value: Any) -> str:
    return f"text-align:{'right' if isinstance(value, (int, float)) else 'left'};padding:2px 12px 2px 0"


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _pre(text: str) -> str:
    return f'<pre style="margin:4px 0;white-space:pre;overflow-x:auto" tabindex="0">{html.escape(text)}</pre>'
