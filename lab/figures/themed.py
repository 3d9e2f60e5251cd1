"""A figure for light and dark pages in one: the light one, and what to change in it for the dark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
import plotly.io

from lab.figures.palette import Theme

Draw = Callable[[Theme], go.Figure]
Patch = list[tuple[list[str | int], Any]]


@dataclass(frozen=True)
class Themed:
    """data and layout as plain JSON values without the title, which pages show as text that wraps. height: pixels."""

    title: str
    height: int
    data: list[Any]
    layout: dict[str, Any]
    dark: Patch

    def value(self) -> dict[str, Any]:
        return {"data": self.data, "layout": self.layout, "dark": self.dark}

    def json(self) -> str:
        return json.dumps(self.value(), separators=(",", ":"))


def themed(draw: Draw) -> Themed:
    light, dark = _spec(draw("light")), _spec(draw("dark"))
    title = light["layout"]["title"]["text"]
    for spec in (light, dark):
        spec["layout"]["title"] = {"automargin": False}
    return Themed(title, light["layout"]["height"], light["data"], light["layout"], differences(light, dark))


def _spec(figure: go.Figure) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plotly.io.to_json(figure, validate=False))
    return {"data": found["data"], "layout": found["layout"]}


def differences(ours: Any, theirs: Any, path: tuple[str | int, ...] = ()) -> Patch:
    """What to set where, to turn the light figure into the dark one: mostly colours, so few bytes."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [d for key in ours for d in differences(ours[key], theirs[key], (*path, key))]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs) and _nested(ours):
        return [d for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) for d in differences(a, b, (*path, i))]
    return [] if ours == theirs else [(list(path), theirs)]


def _nested(values: list[Any]) -> bool:
    return any(isinstance(value, (dict, list)) for value in values)
