"""Figures in a page: one plotly figure for light and dark, a heading that says its point, and words for who
cannot see it.
"""

from __future__ import annotations

import json
from typing import Any

from lab.views.figures.style.dual_theme import Draw, themed
from lab.views.report.html import Html, paragraph, tag


def plot(name: str, draw: Draw, how_to_read: str, *more: object, width: str = "") -> Html:
    """A figure under the heading its title gives. width: "wide" or "medium" if it needs room: on a
    narrow screen it then scrolls in its box.

    `how_to_read` is shown, and names the figure to assistive technology together with the heading; `more`
    follows (a table of the same numbers).
    """
    found = themed(draw)
    box = tag("div", id=f"plot-{name}", class_=f"plot {width}".strip(), style=f"height:{found.height}px")
    scroll = tag("div", box, class_="scroll", role="group", aria_label=f"{found.title}. {how_to_read}", tabindex=0)
    return tag(
        "figure",
        tag("figcaption", tag("h3", found.title), paragraph(how_to_read, class_="how")),
        scroll,
        data_element(f"spec-{name}", found.value()),
        *more,
        class_="card",
    )


def data_element(name: str, value: Any) -> Html:
    """A value for the page's script. `<` is written so that no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return Html(f'<script type="application/json" id="{name}">{text}</script>')
