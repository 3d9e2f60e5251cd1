"""A plotly figure in Jupyter, in the colours of the page, that tells what was clicked."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets
from ipywidgets import widget_serialization
from plotly.offline import get_plotlyjs

from lab.views.figures.style.dual_theme import Draw, Plain, differences, plain
from lab.views.figures.style.palette import Theme
from lab.widgets.modules import module, styles

Click = dict[str, Any]


class Library(anywidget.AnyWidget):
    """plotly.js, packed, once a kernel; figures refer to it. Each figure carrying its own would weigh 5 MB."""

    _esm = "export default { render() {} }"
    source = traitlets.Bytes().tag(sync=True)

    _only: Library | None = None

    @classmethod
    def only(cls) -> Library:
        """The one of this kernel, made anew once it was closed."""
        if cls._only is None or cls._only.comm is None:
            cls._only = cls(source=gzip.compress(get_plotlyjs().encode(), compresslevel=6))
        return cls._only


class Plot(anywidget.AnyWidget):
    """One figure. `show` draws it; `on_click` hears {id, x, y} of what the learner clicked.

    Making a figure takes plotly some 50 ms, so the one for the page's theme comes first; `complete` adds the other,
    and from then on the page changes its theme without asking.
    """

    _esm = module("plot.js")
    _css = styles()
    library = traitlets.Instance(Library).tag(sync=True, **widget_serialization)
    spec = traitlets.Unicode("").tag(sync=True)
    other = traitlets.Unicode("").tag(sync=True)
    dark = traitlets.Bool(False).tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)
    how = traitlets.Unicode("").tag(sync=True)
    view = traitlets.Unicode("").tag(sync=True)
    run = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(300).tag(sync=True)

    def __init__(self, view: str) -> None:
        self._setting = threading.RLock()  # a thread draws while the kernel's own hears of the page's theme
        super().__init__(library=Library.only(), view=view)
        self._shown: tuple[Draw, Theme, Plain] | None = None
        self._version = self._completed = 0
        self.observe(lambda _: self.complete(), "dark")

    def show(self, draw: Draw, run: str, how: str = "") -> None:
        """Draws what `draw` makes for the page's theme, in one message. how: how to read it."""
        theme: Theme = "dark" if self.dark else "light"
        found = plain(draw(theme))
        self._shown, self._version = (draw, theme, found), self._version + 1
        text = _json({"theme": theme, "version": self._version, **found.drawn})
        with self._setting, self.hold_sync():
            self.title, self.height, self.run, self.how, self.spec = found.title, found.height, run, how, text

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """What the page sets. traitlets would lose what another thread sets in the same moment."""
        with self._setting:
            super().set_state(sync_data)

    def complete(self) -> None:
        """Adds what the figure looks like in the other theme, unless it is there."""
        if self._shown is None or self._completed == self._version:
            return
        version, (draw, theme, shown) = self._version, self._shown
        other = plain(draw("light" if theme == "dark" else "dark"))
        changes = _json({"version": version, "changes": differences(shown.drawn, other.drawn)})
        if version == self._version:  # else another figure has taken its place meanwhile
            self._completed = version
            with self._setting:
                self.other = changes

    def on_click(self, heard: Callable[[Click], None]) -> None:
        """Calls `heard` with every click on a mark that has an id; other messages are left out."""

        def hear(_: Any, content: Any, __: Any) -> None:
            match content:
                case {"kind": "click", "id": str(), "x": int() | float() | str(), "y": int() | float() | str()}:
                    heard(content)

        self.on_msg(hear)


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
