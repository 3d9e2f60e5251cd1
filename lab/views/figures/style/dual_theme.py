"""A figure for light and dark pages in one: the light one, and what to change in it for the dark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import plotly.io

from lab.views.figures.style.palette import Theme

Draw = Callable[[Theme], go.Figure]
Patch = list[tuple[list[str | int], Any]]


@dataclass(frozen=True)
class Plain:
    """A figure as plain JSON values, without the title, which pages show as text that wraps. height: pixels."""

    title: str
    height: int
    data: list[Any]
    layout: dict[str, Any]

    @property
    def drawn(self) -> dict[str, Any]:
        return {"data": self.data, "layout": self.layout}


@dataclass(frozen=True)
class Themed:
    """The light figure, and what turns it into the dark one."""

    light: Plain
    dark: Patch

    @property
    def title(self) -> str:
        return self.light.title

    @property
    def height(self) -> int:
        return self.light.height

    def value(self) -> dict[str, Any]:
        """As the page's script takes it: the light figure, and in what the dark one differs."""
        return {**self.light.drawn, "dark": self.dark}


def themed(draw: Draw) -> Themed:
    """Draws the figure twice. draw: theme → figure."""
    light = plain(draw("light"))
    return Themed(light, differences(light.drawn, plain(draw("dark")).drawn))


def plain(figure: go.Figure) -> Plain:
    """A figure as JSON values. It needs a title and a height."""
    found: dict[str, Any] = json.loads(plotly.io.to_json(figure, validate=False))
    layout = found["layout"]
    title = layout["title"]["text"]
    return Plain(title, layout["height"], found["data"], {**layout, "title": {"automargin": False}})


def differences(ours: Any, theirs: Any, path: tuple[str | int, ...] = ()) -> Patch:
    """What to set where, to turn the light figure into the dark one: mostly colours, so few bytes."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [d for key in ours for d in differences(ours[key], theirs[key], (*path, key))]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs) and _nested(ours):
        return [d for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) for d in differences(a, b, (*path, i))]
    return [] if ours == theirs else [(list(path), theirs)]


def _nested(values: list[Any]) -> bool:
    return any(isinstance(value, (dict, list)) for value in values)
