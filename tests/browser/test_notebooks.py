"""The notebooks in JupyterLab in a real browser: they run, stay on this machine, follow the theme, and the sliders of
their explorers start real runs from the keyboard.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from notebooks.build import sources
from tests.browser import sample
from tests.browser.jupyter import Explorer, Lab, Server, gone

SOURCES = sources()
NAMES = [f"{source.name}.ipynb" for source in SOURCES]
EXPLORERS = {f"{source.name}.ipynb" for source in sources() if any("lab.explore(" in c.source for c in source.cells)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("jupyter") / "mine"
    folder.mkdir()
    sample.write(folder / "sample.ipynb", sample.RUNS, sample.EXPLORES)
    sample.write(folder / "long.ipynb", "import lab", sample.LONG)
    sample.write(folder / "bad.ipynb", sample.SHOUTS, sample.RAISES, "2 + 2")
    server = Server.start(folder)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Lab:
    return Lab(browser, server)


@pytest.fixture
def opened(page: Lab, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The notebook that the test names, in the light theme; what it looked like stays where the test failed.

    Once it is closed, no process of it is left.
    """
    page.theme("light")
    before = page.server.family()
    page.open(request.param)
    failed = request.session.testsfailed
    yield page
    if request.session.testsfailed > failed:
        page.page.screenshot(path=page.server.folder / f"failed-{request.param}.png")
    own = page.server.family() - before
    assert own, "its kernel at least"
    page.close()
    assert gone(own)


def moves(explorer: Explorer) -> None:
    """Moves a slider by one stop, by keyboard, and waits for the new run in every figure."""
    before = explorer.wait("measured", "replayed")
    explorer.drawn(before)
    explorer.press(*explorer.move())
    after = explorer.wait("measured", "replayed", other_than=before)
    assert after and after != before
    explorer.drawn(after)


@pytest.mark.parametrize("opened", ["bad.ipynb"], indirect=True)
def test_the_driver_sees_what_is_wrong(opened: Lab) -> None:
    opened.run_all()
    raised, skipped = opened.errors()
    assert raised == "code cell 1 (1 / 0): ZeroDivisionError: division by zero"
    assert skipped == "code cell 2 (2 + 2): not run"
    assert opened.strangers() == {"example.invalid"}
    assert "heard" in opened.complaints
    assert [found.split(":")[0] for found in opened.barriers()] == ["button-name"]


@pytest.mark.parametrize("opened", ["sample.ipynb"], indirect=True)
def test_a_slider_moved_by_keyboard_starts_a_run_and_the_figures_change_to_it(opened: Lab) -> None:
    opened.run_all()
    assert opened.errors() == []
    moves(opened.explorer())
    assert len(list(opened.server.runs.glob("*/run.json"))) >= 3
    opened.theme("dark")
    assert (opened.barriers(), opened.complaints, opened.strangers()) == ([], [], set())


@pytest.mark.parametrize("opened", ["long.ipynb"], indirect=True)
def test_a_running_run_is_cancelled_by_its_button_and_the_kernel_goes_on(opened: Lab) -> None:
    opened.run_all()
    explorer = opened.explorer()
    explorer.wait("running")
    explorer.root.get_by_role("button", name="Cancel run").press("Enter")
    explorer.wait("cancelled")
    opened.run_all()
    assert (opened.errors(), opened.complaints) == ([], [])


@pytest.mark.parametrize("opened", NAMES, indirect=True)
def test_every_notebook_runs_in_jupyterlab(opened: Lab, request: pytest.FixtureRequest) -> None:
    opened.run_all()
    assert opened.errors() == []
    if request.node.callspec.params["opened"] in EXPLORERS:
        moves(opened.explorer())
    opened.theme("dark")
    assert opened.barriers() == []
    opened.theme("light")
    assert opened.barriers() == []
    assert opened.complaints == []
    assert opened.strangers() == set()


@pytest.mark.parametrize("opened", ["index.ipynb"], indirect=True)
def test_links_lead_from_the_index_to_a_notebook_on_to_the_next_and_back(opened: Lab) -> None:
    first, second = SOURCES[:2]
    for link, name in ((first.title, first.name), (f"{second.title} →", second.name), (f"← {first.title}", first.name)):
        opened.follow(link)
        opened.wait_for(f"{name}.ipynb")
    opened.follow("Index")
    opened.wait_for("index.ipynb")
    assert opened.complaints == []
