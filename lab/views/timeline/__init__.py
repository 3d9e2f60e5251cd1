"""The timeline of a step: one ES module that draws on a canvas, and its adapters for Jupyter, Streamlit and reports.

from lab.views.timeline import TimelineWidget, timeline_data
TimelineWidget(data=timeline_data(run.recording, run.job))

It may import the figures' style and `analysis`. Start with `data.py`, what the browser is given, then `js/timeline.js`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.views.timeline.data import portable, timeline_data, timeline_of_run
from lab.views.timeline.joiner import module

if TYPE_CHECKING:
    from lab.views.timeline.widget import TimelineWidget

__all__ = ["TimelineWidget", "module", "portable", "timeline_data", "timeline_of_run"]


def __getattr__(name: str) -> Any:
    """The widget loads anywidget, which reports and dashboards do without."""
    if name == "TimelineWidget":
        from lab.views.timeline.widget import TimelineWidget

        return TimelineWidget
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
