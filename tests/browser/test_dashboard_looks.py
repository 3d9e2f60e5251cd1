"""How the dashboard's pages look with real runs: in the light, in the dark and on a narrow screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.dashboard import NARROW, Server, Window

Open = Callable[..., Window]
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"viewport": NARROW},
}
PAGES = ("", "launch", "live", "compare", "pipeline", "grid", "memory", "communication", "planner")
WIDER = """() => [document.scrollingElement, document.querySelector("[data-testid=stMain]")]
    .map(part => part.scrollWidth - part.clientWidth)"""
CUT = """() => [...document.querySelectorAll("[data-testid=stMain] *")]
    .filter(part => part.clientWidth && part.scrollWidth > part.clientWidth + 1 && part.innerText?.trim())
    .filter(part => ["hidden", "clip"].includes(getComputedStyle(part).overflowX) && !part.title)
    .map(part => part.innerText)"""
"""Words that stand wider than the element that hides the rest; those of a tag are whole in its tip."""
PAPER = "() => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
FIGURES = """() => [...document.querySelectorAll(".js-plotly-plot")]
    .map(figure => getComputedStyle(figure.querySelector(".main-svg")).backgroundColor)"""


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_can_be_read_by_everybody(look: str, dashboard: Server, window: Open) -> None:
    runs = ",".join(sorted(path.parent.name for path in dashboard.runs.glob("2*/run.json")))
    page = window(dashboard, **LOOKS[look])
    found = {}
    for path in PAGES:
        page.open(path, **({"runs": runs} if path == "compare" else {}))
        page.page.evaluate("document.fonts.ready.then(() => null)")
        assert page.page.evaluate(WIDER) == [0, 0], f"/{path} scrolls sideways"
        found[path or "runs"] = [*page.barriers(), *page.page.evaluate(CUT)]
        assert set(page.page.evaluate(FIGURES)) <= {page.page.evaluate(PAPER)}, "figures lie on the page's own paper"
    assert not any(found.values()), found
