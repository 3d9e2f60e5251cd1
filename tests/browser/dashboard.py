"""Drives `lab dashboard` in a real browser: starts and ends its server, opens its pages, and tells what they asked for
and said.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlparse

import psutil
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Dialog, Locator, Page, Position, Response, ViewportSize

import lab
from tests.browser.chromium import POLL_MS

ROOT = Path(lab.__file__).parent.parent
WIDE = ViewportSize(width=1280, height=900)
NARROW = ViewportSize(width=420, height=900)
SLOW_MS = 120_000  # real runs, on two busy cores
_READY = """() => { const app = document.querySelector("[data-testid=stApp]");
    return app?.dataset.testScriptState === "notRunning" && app?.dataset.testConnectionState === "CONNECTED"
        && !document.querySelector("[data-testid=stSkeleton], [data-testid=stAppSkeleton], [data-testid=stSpinner]");
}"""
_ROWS = """canvas => { const text = cells => [...cells].map(cell => cell.textContent);
    const names = text(canvas.querySelectorAll("th"));
    return [...canvas.querySelectorAll("tbody tr")].map(row => Object.fromEntries(
        [["chosen", row.ariaSelected], ...text(row.querySelectorAll("td")).map((value, i) => [names[i], value])])); }"""
_PROBE = "/_stcore/"  # Streamlit looks for its server below the page's own address first, and finds it one level up


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


@dataclass(frozen=True)
class Server:
    """`lab dashboard`, started as a learner would but for the browser."""

    process: subprocess.Popen[str]
    port: int
    token: str | None
    printed: str
    runs: Path

    @classmethod
    def start(cls, runs: Path, port: int | None = None, *options: str, **surroundings: str) -> Server:
        """On the store in `runs`, started in the folder around it. Returns when it says its address."""
        runs.mkdir(exist_ok=True)
        environment = os.environ | {"PYTHONPATH": str(ROOT), "SHARDLAB_RUNS": str(runs)} | surroundings
        wish = ["--no-browser", "--json", "--port", str(port or free_port()), *options]
        command = [sys.executable, "-m", "lab.cli", "dashboard", *wish]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=runs.parent, env=environment, text=True, stdout=pipe, stderr=pipe)
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        assert told["runs"] == str(runs)
        return cls(process, told["port"], told["token"], told["url"], runs)

    @property
    def url(self) -> str:
        """Of a page, for a window that has come in by the printed address."""
        return f"http://127.0.0.1:{self.port}/"

    def stop(self) -> tuple[int, str]:
        """As Ctrl-C does. Its exit status, and what it said."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said

    def others(self) -> list[psutil.Process]:
        """Every process of this machine that belongs to the store, but for servers: this one, or another on it."""
        return [one for one in psutil.process_iter() if _belongs(one, self.runs)]


def end(server: Server) -> None:
    """Ends a server that may have ended, and what else may be left of its store's processes."""
    if server.process.poll() is None:
        server.stop()
    _end_others(server)


def clear(server: Server) -> None:
    """Ends what may be left of its store's processes, and empties the store. The server goes on."""
    _end_others(server)
    for path in server.runs.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _end_others(server: Server) -> None:
    left = server.others()
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)


def _belongs(process: psutil.Process, runs: Path) -> bool:
    with suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        command = process.cmdline()
        said = [*command, process.cwd(), *process.environ().values()]
        return "dashboard" not in command and any(str(runs) in text for text in said)
    return False


class Window:
    """A browser window of its own, as another person's would be. It keeps what its page asked for and complained of."""

    def __init__(self, browser: Browser, server: Server, *, comes_in: bool = True, **options: Any) -> None:
        """comes_in: by the address that the server printed; else nobody has told it."""
        self.server = server
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.context: BrowserContext = browser.new_context(**({"viewport": WIDE} | options))
        if comes_in:
            assert self.context.request.get(server.printed).ok
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(SLOW_MS)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("websocket", lambda socket: self.asked.append(socket.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._asked_back)
        self.page.on("console", lambda m: self._heard(m.text, m.location["url"]) if m.type == "error" else None)

    def _asked_back(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def _heard(self, text: str, url: str) -> None:
        if not ("404" in text and _PROBE in url):
            self.complaints.append(f"{text} ({url})")

    def open(self, path: str = "", **query: str) -> Response:
        """Opens a page by its address, and waits for it."""
        asked = f"{self.server.url}{path}{'?' if query else ''}{urlencode(query)}"
        found = self.page.goto(asked)
        self.ready()
        assert found is not None
        return found

    def ready(self) -> None:
        """Waits until the page's script has run through."""
        self.page.wait_for_function(_READY, polling=POLL_MS)

    def go(self, title: str) -> None:
        """To another page, by the list of pages at the side, or in its drawer."""
        self.page.get_by_test_id("stSidebarNavLink").filter(has_text=title).click()
        self.heading(title).wait_for()
        self.ready()

    def heading(self, title: str) -> Locator:
        return self.page.get_by_role("heading", name=title, exact=True, level=1)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name)

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlparse(self.page.url).query).items()}

    def box(self, label: str) -> Locator:
        """A list to choose from, by its label."""
        return self.page.get_by_role("combobox", name=label, exact=True)

    def choose(self, label: str, option: str) -> None:
        self.box(label).click()
        self.page.get_by_role("option", name=option).first.click()

    def fill(self, label: str, text: str) -> None:
        """Types into a field, and leaves it."""
        self.ready()  # while a page changes, a field can be there twice
        field = self.page.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Enter")

    def says(self, words: str, *, exact: bool = False) -> None:
        """Waits until the page itself says so: a tooltip may too, and a page that changes may say it twice."""
        self.page.get_by_test_id("stMain").get_by_text(words, exact=exact).first.wait_for()

    def metric(self, label: str) -> Locator:
        """The value of a number with a label."""
        return self.page.get_by_test_id("stMetric").filter(has_text=label).get_by_test_id("stMetricValue")

    def timeline(self, number: int = 0) -> Timeline:
        root = self.page.locator(".sl-timeline").nth(number)
        root.and_(self.page.locator("[data-window]")).wait_for()
        return Timeline(root)

    def rows(self) -> list[dict[str, str]]:
        """The table of runs as assistive technology reads it, of what is in sight: a canvas shows the rest.

        The table is there a moment before its rows are.
        """
        grid = self.page.get_by_test_id("data-grid-canvas").first
        until(lambda: bool(grid.evaluate(_ROWS)))
        found: list[dict[str, str]] = grid.evaluate(_ROWS)
        return found

    def pick(self, place: int) -> None:
        """Clicks the box at the beginning of a row of the table, counted from the top."""
        before = self.rows()[place]["chosen"]
        self.page.locator(".dvn-scroller").first.click(position=Position(x=16, y=36 + 35 * place + 17))
        until(lambda: self.rows()[place]["chosen"] != before)

    def strangers(self) -> set[str]:
        """The hosts other than this machine that the page asked for something."""
        addresses = [urlparse(url) for url in self.asked]
        return {a.netloc for a in addresses if a.scheme not in ("data", "blob") and a.hostname != "127.0.0.1"}

    def barriers(self) -> list[str]:
        """What axe finds serious or critical."""
        return [
            f"{one['id']}: {node['html'][:200]}"
            for one in Axe().run(self.page).response["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    def close(self) -> None:
        self.context.close()


@dataclass(frozen=True)
class Timeline:
    """A timeline on the page, used by keyboard and pointer. window and cursor are as drawn last, in ms."""

    root: Locator

    @property
    def window(self) -> str:
        return self.root.get_attribute("data-window") or ""

    @property
    def cursor(self) -> str:
        return self.root.get_attribute("data-cursor") or ""

    def press(self, *keys: str) -> None:
        self.root.locator(".sl-plot").focus()
        for key in keys:
            self.root.page.keyboard.press(key)

    def point(self, share: float) -> None:
        """Clicks so far from the left."""
        plot = self.root.locator(".sl-plot")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box is not None
        plot.click(position=Position(x=share * box["width"], y=50))


def until(true: Callable[[], object], within: float = SLOW_MS / 1000) -> None:
    deadline = time.monotonic() + within
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)
