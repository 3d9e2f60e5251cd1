"""Colours and the look every figure shares, for light and dark pages.

At most eight colours, each at least 3:1 against its page, told apart under every common colour blindness
(smallest CIE76 distance 20 under Machado's simulations; a test holds this). No figure says anything by
colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import plotly.graph_objects as go

Theme = Literal["light", "dark"]

CONFIG: dict[str, Any] = {"displaylogo": False, "showSendToCloud": False, "responsive": True}
"""For Plotly wherever a figure is shown: nothing leaves this machine."""


@dataclass(frozen=True)
class Palette:
    """Colours by name. idle is drawn hatched, on `paper`; where nothing can be hatched, idle_raster is as pale as
    that.
    """

    paper: str
    ink: str
    faint: str
    grid: str
    blue: str
    orange: str
    violet: str
    green: str
    purple: str
    brown: str
    sky: str
    idle: str
    idle_raster: str

    @property
    def every(self) -> tuple[str, ...]:
        return (self.blue, self.orange, self.violet, self.green, self.purple, self.brown, self.sky, self.idle)


PALETTES: dict[str, Palette] = {
    "light": Palette(
        paper="#FFFFFF", ink="#1B2026", faint="#57606A", grid="#E3E6EA",
        blue="#0464BF", orange="#E05B13", violet="#1E0042",
        green="#00513C", purple="#AD4E98", brown="#684B00", sky="#179EDB",
        idle="#919393", idle_raster="#CFD2D5",
    ),
    "dark": Palette(
        paper="#14171C", ink="#E8EBEF", faint="#A3ACB7", grid="#2C323A",
        blue="#1B85C7", orange="#F07A3C", violet="#A218FC",
        green="#4BC28C", purple="#E08DBC", brown="#FDD761", sky="#A6DCFF",
        idle="#6A6F76", idle_raster="#343A42",
    ),
}  # fmt: skip


def ink_on(colour: str) -> str:
    """White or near-black, whichever is easier to read on a fill of `colour` (WCAG 2 contrast)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return "#FFFFFF" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.183 else "#0B0D10"


def palette(theme: Theme) -> Palette:
    return PALETTES[theme]


def figure(title: str, theme: Theme, height: int, traces: list[Any], **layout: Any) -> go.Figure:
    """A figure with the lab's look. `title` says the point, with the number and its definition."""
    # uirevision: zoom and hidden categories survive a change of theme
    look = {"template": _template(theme), "height": height, "uirevision": "keep", "title_text": title}
    return go.Figure(traces, layout={**look, **layout})


@cache
def _template(theme: Theme) -> go.layout.Template:
    """Made once: plotly checks every setting of it, which takes longer than the rest of a small figure."""
    p = palette(theme)
    axis = {"gridcolor": p.grid, "linecolor": p.faint, "zerolinecolor": p.grid, "automargin": True}
    return go.layout.Template(
        layout={
            "font": {"family": "system-ui, sans-serif", "size": 13, "color": p.ink},
            "paper_bgcolor": p.paper,
            "plot_bgcolor": p.paper,
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {
                "bgcolor": p.paper,
                "bordercolor": p.faint,
                "font": {"color": p.ink},
                "align": "left",
            },
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "xanchor": "left"},
            "title": {
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "font": {"size": 16},
                "automargin": True,
                "yref": "container",
                "y": 0.98,
                "yanchor": "top",
                "pad": {"b": 8},
            },
            "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        }
    )


def empty(title: str, reason: str, theme: Theme) -> go.Figure:
    """What stands in for a figure without data: says why."""
    fig = figure(title, theme, 160, [], xaxis_visible=False, yaxis_visible=False)
    return fig.add_annotation(text=reason, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper")


def hatched(colour: str, theme: Theme, shape: str = "/") -> dict[str, Any]:
    """Marker settings of a hatched bar: strokes of `colour` on the page."""
    paper = palette(theme).paper
    pattern = {
        "shape": shape,
        "fgcolor": colour,
        "bgcolor": paper,
        "size": 6,
        "solidity": 0.3,
        "fillmode": "replace",
    }
    return {"color": colour, "pattern": pattern, "line": {"color": colour, "width": 0.5}}
