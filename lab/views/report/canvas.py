"""Timelines in a page: the canvas component under a heading that says its point."""

from __future__ import annotations

from typing import Any

from lab.views.report.html import Html, paragraph, tag
from lab.views.report.plots import data_element
from lab.views.timeline import portable


def canvas(name: str, data: dict[str, Any], label: str, *more: object) -> Html:
    """A timeline of `lab.views.timeline.timeline_data`. label: names it to assistive technology; `more` follows it."""
    spec = {"data": portable({**data, "title": ""}), "options": {"label": label}}  # the page has the title as a heading
    return tag(
        "figure",
        tag("figcaption", tag("h3", data["title"]), paragraph(data["how"], class_="how")),
        tag("div", id=f"plot-{name}", class_="timeline", data_spec=f"spec-{name}"),
        data_element(f"spec-{name}", spec),
        *more,
        class_="card",
    )
