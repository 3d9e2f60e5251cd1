"""A figure of numbers that belong to no single run, in the colours of the page."""

from __future__ import annotations

from lab.figures.themed import Draw
from lab.widgets.plot import Plot


def still(draw: Draw, how: str = "") -> Plot:
    """What `draw` makes for a theme, such as `lambda theme: curves_figure(…, theme=theme)`. how: how to read it."""
    shown = Plot("still", how)
    shown.show(draw, "")
    return shown
