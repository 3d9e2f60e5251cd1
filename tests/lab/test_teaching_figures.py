"""The figures that notebooks draw of numbers which belong to no run."""

import numpy as np
import pytest

from lab.views.figures.communication.ring import ring_figure
from lab.views.figures.style.curves import curves_figure
from lab.views.figures.style.palette import PALETTES

TWO_RANKS = [np.array([[1, 1], [1, 1]]), np.array([[1, 2], [2, 1]]), np.array([[2, 2], [2, 2]])]


def test_a_ring_is_drawn_as_one_square_for_the_start_and_one_after_each_exchange() -> None:
    drawn = ring_figure(TWO_RANKS)
    assert [note.text for note in drawn.layout.annotations] == ["at the start", "after exchange 1", "after exchange 2"]
    assert [np.asarray(square.z).tolist() for square in drawn.data] == [held.tolist() for held in TWO_RANKS]
    assert np.asarray(drawn.data[1].text).tolist() == [["1/2", "✔"], ["✔", "1/2"]]
    assert "after 1 exchange, all pieces after 2" in drawn.layout.title.text


def test_curves_differ_by_dash_and_marker_too_and_keep_their_values() -> None:
    drawn = curves_figure([1, 10], {"a": [1.0, 2.0], "b": [3.0, 4.0]}, title="t", across="ranks")
    assert [list(line.y) for line in drawn.data] == [[1.0, 2.0], [3.0, 4.0]]
    assert len({line.line.dash for line in drawn.data}) == len({line.marker.symbol for line in drawn.data}) == 2


def test_more_curves_than_can_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 6"):
        curves_figure([1], {str(i): [1.0] for i in range(7)}, title="t", across="x")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_stand_on_the_paper_of_their_theme(theme: str) -> None:
    ring = ring_figure(TWO_RANKS, theme=theme)
    curves = curves_figure([1], {"a": [1.0]}, title="t", across="x", theme=theme)
    for drawn in (ring, curves):
        assert drawn.layout.template.layout.paper_bgcolor == PALETTES[theme].paper
