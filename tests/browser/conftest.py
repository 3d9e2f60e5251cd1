"""One browser for all tests that look at pages. Without one they fail: a page nobody opened proves nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from engine.cluster.cluster import load_cluster
from engine.job.job import Job
from engine.prediction.replay.replay import replay
from engine.prediction.simulate import simulate
from lab.running.execute import run_job
from lab.store.store import Store
from lab.views.timeline import module, portable, timeline_data
from tests.browser.chromium import PATH, QUIET
from tests.browser.dashboard import Server, Window, clear, end
from tests.browser.timeline_page import CUBE, PAGE, Open
from tests.engine.clusters import cluster
from tests.lab.synthetic import LIFELIKE, synthetic


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two real runs, the older one with ZeRO-1, the newer one with ZeRO-3."""
    store = Store(tmp_path_factory.mktemp("stock") / "runs")
    for zero in (1, 3):
        run_job(Job.from_options(dp=2, pp=2, zero=zero), store=store)
    return store.root


@pytest.fixture(scope="package")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one dashboard of all tests but those that end theirs, or need another."""
    server = Server.start(tmp_path_factory.mktemp("dashboard") / "runs")
    yield server
    end(server)


@pytest.fixture
def fresh(served: Server) -> Iterator[Server]:
    """On a store without runs. A test names it before `window`: pages close before the store is emptied."""
    yield served
    clear(served)


@pytest.fixture
def dashboard(fresh: Server, stock: Path) -> Server:
    """On a copy of the stock."""
    shutil.copytree(stock, fresh.runs, dirs_exist_ok=True)
    return fresh


@pytest.fixture
def serve() -> Iterator[Callable[[Path], Server]]:
    """Starts more dashboards on a store. A test names it before `window`, as above."""
    servers: list[Server] = []

    def another(runs: Path) -> Server:
        servers.append(Server.start(runs))
        return servers[-1]

    yield another
    for one in servers:
        end(one)


@pytest.fixture
def window(browser: Browser) -> Iterator[Callable[..., Window]]:
    """Opens windows of a dashboard. None of their pages may complain, or ask anybody but this machine for anything."""
    windows: list[Window] = []

    def another(server: Server, **options: Any) -> Window:
        windows.append(Window(browser, server, **options))
        return windows[-1]

    yield another
    for one in windows:
        one.close()
    assert [(one.complaints, one.strangers()) for one in windows] == [([], set())] * len(windows)


@pytest.fixture(scope="module")
def pair() -> list[dict[str, Any]]:
    recording = synthetic(CUBE, LIFELIKE)
    slow = simulate(CUBE, load_cluster("toy-2x4"))
    fast = replay(slow, CUBE, cluster(2, devices=8))
    return [timeline_data(recording, CUBE, 1), timeline_data(slow, CUBE, predicted=fast)]


@pytest.fixture
def visit(browser: Browser, pair: list[dict[str, Any]], tmp_path: Path) -> Iterator[Open]:
    pages: list[Page] = []
    complaints: list[str] = []

    def open_page(data: list[dict[str, Any]] = pair, width: int = 1000, **options: Any) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        text = json.dumps([portable(each) for each in data]).replace("<", "\\u003c")
        (tmp_path / "page.html").write_text(PAGE.format(data=text, module=module()), encoding="utf-8")
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_function("document.querySelector('#two .sl-timeline')?.dataset.drawMs !== undefined")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert complaints == []
