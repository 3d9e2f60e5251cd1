"""How runs beside each other look, the same in every figure: a colour, and a dash, a symbol and a letter with it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from lab.views.figures.style.palette import Theme, palette

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up")
_SIGNS = ("●", "■", "◆", "✚", "✖", "▲")
MOST_LOOKS = len(_DASHES)
_LABEL = 26  # characters in a line of a label


@dataclass(frozen=True)
class RunLook:
    """colour, dash and symbol as plotly takes them; sign: the symbol as a character."""

    colour: str
    dash: str
    symbol: str
    sign: str


def run_looks(count: int, theme: Theme) -> tuple[RunLook, ...]:
    """The looks of up to six runs, or curves, in their order. Raises `ValueError` for more."""
    if count > MOST_LOOKS:
        raise ValueError(f"{count} curves are too many to be told apart: show at most {MOST_LOOKS}.")
    p = palette(theme)
    colours = (p.blue, p.orange, p.green, p.purple, p.brown, p.sky)
    return tuple(RunLook(*look) for look in zip(colours, _DASHES, _SYMBOLS, _SIGNS, strict=True))[:count]


def run_colours(count: int, theme: Theme) -> tuple[str, ...]:
    """The colours alone."""
    return tuple(look.colour for look in run_looks(count, theme))


def run_labels(names: Sequence[str], theme: Theme) -> list[str]:
    """Names of runs for an axis: the run's sign in its colour, then its name in lines short enough to fit."""
    looks = run_looks(len(names), theme)
    return [
        f'<span style="color:{look.colour}">{look.sign}</span> {"<br>".join(textwrap.wrap(name, _LABEL))}'
        for look, name in zip(looks, names, strict=True)
    ]


def letter(name: str) -> str:
    """What a title calls a run: its name up to the colon."""
    return name.split(":")[0]
