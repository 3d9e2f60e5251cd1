"""The explorer's controls in the browser. It shows what it is told and tells what the learner wishes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from lab.widgets.explorer.status_text import NOT_RUN
from lab.widgets.modules import module, styles

Message = Any
"""What a page sends: JSON of any form."""


class Panel(anywidget.AnyWidget):
    """Knobs, a switch for the source of times, progress, the equality badge.

    Hears {kind: "wish", name, value}, {kind: "source", value}, {kind: "cancel"} and {kind: "again"}.
    """

    _esm = module("panel.js")
    _css = styles()
    knobs: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    said = traitlets.Unicode("").tag(sync=True)
    state = traitlets.Unicode("starting").tag(sync=True)
    run = traitlets.Unicode("").tag(sync=True)
    shown = traitlets.Unicode("").tag(sync=True)
    headline = traitlets.Unicode("Working out the prediction; the first one takes some seconds…").tag(sync=True)
    badge = traitlets.Dict(NOT_RUN).tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)
    progress = traitlets.Float(0.0).tag(sync=True)
    source = traitlets.Unicode("measured").tag(sync=True)
    sources: traitlets.List[dict[str, str]] = traitlets.List().tag(sync=True)

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        super().__init__()
        self._telling = threading.RLock()  # runs, drawings and wishes tell, each in a thread of its own
        self.on_msg(lambda _, content, __: on_message(content))

    def tell(self, **news: Any) -> None:
        """Several values in one message."""
        with self._telling, self.hold_sync():
            for name, value in news.items():
                setattr(self, name, value)
