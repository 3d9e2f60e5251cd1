"""The timeline in Jupyter."""

from __future__ import annotations

import anywidget
import traitlets

from lab.views.timeline.joiner import module


class TimelineWidget(anywidget.AnyWidget):
    """A timeline whose choice, window and cursor Python can read, set and observe.

    data: of `lab.views.timeline.timeline_data`. selected_rank: the marked rank. selected_op: row number in the step's
    rows (`lab.analysis.step_ops`), None for idle stretches too. cursor_ms, window: ms since the step's start; a window
    of None is the whole step. group: timelines of one group on a page share window and cursor. theme: "auto" follows
    the page. label: names the timeline for people who cannot see it.
    """

    _esm = module("jupyter.js")

    data = traitlets.Dict().tag(sync=True)
    selected_rank = traitlets.Int(None, allow_none=True).tag(sync=True)
    selected_op = traitlets.Int(None, allow_none=True).tag(sync=True)
    cursor_ms = traitlets.Float(None, allow_none=True).tag(sync=True)
    window = traitlets.List(traitlets.Float(), None, minlen=2, maxlen=2, allow_none=True).tag(sync=True)
    group = traitlets.Unicode("").tag(sync=True)
    theme = traitlets.Enum(("auto", "light", "dark"), "auto").tag(sync=True)
    label = traitlets.Unicode("").tag(sync=True)
