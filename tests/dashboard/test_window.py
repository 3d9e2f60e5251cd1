"""The window of a timeline in the address."""

from __future__ import annotations

import pytest

from dashboard.page.timeline_window import parsed, written


@pytest.mark.parametrize("window", [(0.0, 1.0), (2.5, 40.0), (0.0001, 12345.6789), (10.0, 100.0)])
def test_what_is_written_is_read_back(window: tuple[float, float]) -> None:
    assert parsed(written(window)) == window


@pytest.mark.parametrize(
    "text", ["", "5", "5-", "-5", "9-2", "3-3", "nan-2", "1e9-2e9", "1-" + "9" * 400, "<b>-2", "1-2-3"]
)
def test_anything_else_in_an_address_is_no_window(text: str) -> None:
    assert parsed(text) is None
