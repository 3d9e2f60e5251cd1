"""Colours against WCAG 2 contrast, and CIE76 distances under Machado, Oliveira, Fernandes 2009 (severity 1)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from lab.views.figures.style.palette import PALETTES, Theme
from lab.views.figures.timeline.timeline import timeline_figure
from tests.lab.synthetic import synthetic
from tests.lab.test_figures import PIPELINE, THEMES, named

BLINDNESS = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}  # fmt: skip
Vector = NDArray[np.float64]


def linear(colour: str) -> Vector:
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def cielab(rgb: Vector) -> Vector:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ rgb / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, two: str) -> float:
    darker, lighter = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, two))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("kind", BLINDNESS)
def test_any_two_colours_can_be_told_apart_with_every_kind_of_sight(theme: str, kind: str) -> None:
    seen = [cielab(np.clip(np.array(BLINDNESS[kind]) @ linear(c), 0, 1)) for c in PALETTES[theme].every]
    assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > 20


@pytest.mark.parametrize("theme", THEMES)
def test_every_colour_stands_out_from_the_page(theme: str) -> None:
    p = PALETTES[theme]
    assert min(contrast(c, p.paper) for c in p.every) >= 3
    assert contrast(p.ink, p.paper) >= 7 and contrast(p.faint, p.paper) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_numbers_in_boxes_are_readable(theme: Theme) -> None:
    fig = timeline_figure(synthetic(PIPELINE), PIPELINE, step=1, theme=theme)
    written = next(t for t in fig.data if t.type == "scatter")
    for name in ("forward", "backward"):
        bars = named(fig, name)
        in_box = [
            ink
            for x, y, ink in zip(written.x, written.y, written.textfont.color, strict=True)
            if any(b < x < b + w and y == row for b, w, row in zip(bars.base, bars.x, bars.y, strict=True))
        ]
        assert in_box and min(contrast(ink, bars.marker.color) for ink in in_box) >= 4.5
