"""How the dashboard's pages look with real runs: in the dark, turned to light while they are open, and on a narrow
screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.browser.dashboard import NARROW, WIDE, Server, Window, until

Open = Callable[..., Window]
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


def looks(page: Window) -> Iterator[str]:
    """Shows the open page in one look after the other. Most of what a look costs is to open the page."""
    yield "dark"
    dark = page.page.evaluate(PAPER)
    page.page.emulate_media(color_scheme="light")
    until(lambda: page.page.evaluate(PAPER) != dark)
    page.ready()
    yield "light"
    page.page.set_viewport_size(NARROW)
    page.ready()
    yield "narrow"
    page.page.set_viewport_size(WIDE)
    page.page.emulate_media(color_scheme="dark")


def on_its_paper(page: Window) -> bool:
    """Whether all figures lie on the page's own paper."""
    return set(page.page.evaluate(FIGURES)) <= {page.page.evaluate(PAPER)}


def test_every_page_can_be_read_by_everybody(dashboard: Server, window: Open) -> None:
    runs = ",".join(sorted(path.parent.name for path in dashboard.runs.glob("2*/run.json")))
    page = window(dashboard, color_scheme="dark")
    found = {}
    for path in PAGES:
        page.open(path, **({"runs": runs} if path == "compare" else {}))
        page.page.evaluate("document.fonts.ready.then(() => null)")
        for look in looks(page):
            until(lambda: on_its_paper(page))
            until(lambda: page.page.evaluate(WIDER) == [0, 0])
            found[f"{path or 'runs'}, {look}"] = [*page.barriers(), *page.page.evaluate(CUT)]
    assert not any(found.values()), found
