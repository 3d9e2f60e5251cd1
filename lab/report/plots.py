"""Figures in a page: one plotly figure for light and dark, a heading that says its point, and words for who
cannot see it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import plotly.io

from lab.figures.palette import Theme
from lab.report.html import Html, paragraph, tag

Draw = Callable[[Theme], go.Figure]
Patch = list[tuple[list[str | int], Any]]


def plot(name: str, draw: Draw, how_to_read: str, *more: object, width: str = "") -> Html:
    """A figure under the heading its title gives. width: "wide" or "medium" if it needs room: on a
    narrow screen it then scrolls in its box.

    `how_to_read` is shown, and names the figure to assistive technology together with the heading; `more`
    follows (a table of the same numbers).
    """
    light, dark = _spec(draw("light")), _spec(draw("dark"))
    title = light["layout"]["title"]["text"]
    for spec in (light, dark):
        spec["layout"]["title"] = {"automargin": False}  # the page has it as a heading, which wraps
    height = light["layout"]["height"]
    box = tag("div", id=f"plot-{name}", class_=f"plot {width}".strip(), style=f"height:{height}px")
    scroll = tag("div", box, class_="scroll", role="group", aria_label=f"{title}. {how_to_read}", tabindex=0)
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), paragraph(how_to_read, class_="how")),
        scroll,
        data_element(f"spec-{name}", {**light, "dark": differences(light, dark)}),
        *more,
        class_="card",
    )


def _spec(figure: go.Figure) -> dict[str, Any]:
    """data and layout as plain JSON values."""
    found: dict[str, Any] = json.loads(plotly.io.to_json(figure, validate=False))
    return {"data": found["data"], "layout": found["layout"]}


def data_element(name: str, value: Any) -> Html:
    """A value for the page's script. `<` is written so that no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{name}">{text}</script>')


def differences(ours: Any, theirs: Any, path: tuple[str | int, ...] = ()) -> Patch:
    """What to set where, to turn the light figure into the dark one: mostly colours, so few bytes."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        return [d for key in ours for d in differences(ours[key], theirs[key], (*path, key))]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs) and _nested(ours):
        return [d for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) for d in differences(a, b, (*path, i))]
    return [] if ours == theirs else [(list(path), theirs)]


def _nested(values: list[Any]) -> bool:
    return any(isinstance(value, (dict, list)) for value in values)
