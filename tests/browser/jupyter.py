"""Drives `lab notebooks` in a real browser: opens a notebook, runs it, and tells what the page asked for and said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import psutil
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ElementHandle, Locator, Page, TimeoutError, ViewportSize

import lab
from tests.browser.chromium import POLL_MS

ROOT = Path(lab.__file__).parent.parent
WIDE = ViewportSize(width=1280, height=900)
SLOW_MS = 120_000  # a whole notebook of real runs, on two busy cores
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_EXPOSED = {"LabApp": {"expose_app_in_browser": True}}  # so that a test can call JupyterLab's own commands
_IDLE = "() => jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
_SHOWN = (
    "name => jupyterapp.shell.currentWidget?.context?.path === name && jupyterapp.shell.currentWidget.context.isReady"
)
_CELLS = """() => [...jupyterapp.shell.currentWidget.content.model.cells].map(c => c.toJSON())
                  .filter(c => c.cell_type === 'code')"""
_CLOSE = """async () => {
    for (const shown of [...jupyterapp.shell.widgets('main')]) {
        if (shown.context) shown.context.model.dirty = false;  // or it asks whether to save
        shown.close();
    }
    await jupyterapp.serviceManager.sessions.shutdownAll();
}"""


@dataclass(frozen=True)
class Server:
    """`lab notebooks`, started as a learner would but for the browser."""

    process: subprocess.Popen[str]
    url: str
    folder: Path
    runs: Path

    @classmethod
    def start(cls, folder: Path) -> Server:
        config = folder / ".jupyter" / "config" / "jupyter_server_config.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps(_EXPOSED), encoding="utf-8")
        runs = folder.parent / "runs"
        home = str(folder.parent / "home")  # of nobody: what a user has set up must not be needed, nor get in the way
        environment = os.environ | {"HOME": home, "PYTHONPATH": str(ROOT), "SHARDLAB_RUNS": str(runs)}
        command = [sys.executable, "-m", "lab.cli", "notebooks", "--no-browser", "--json", "--to", str(folder)]
        process = subprocess.Popen(command, cwd=folder.parent, env=environment, text=True, stdout=subprocess.PIPE)
        assert process.stdout is not None
        return cls(process, json.loads(process.stdout.readline())["url"], folder, runs)

    def family(self) -> set[psutil.Process]:
        """All processes below it: kernels, what they start ranks from, and ranks."""
        return set(psutil.Process(self.process.pid).children(recursive=True))

    def stop(self) -> None:
        """As Ctrl-C does. Nothing of it is left behind."""
        family = self.family()
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)
        assert gone(family)


def gone(processes: set[psutil.Process]) -> bool:
    """Whether they end, within a time for a busy machine."""
    _, alive = psutil.wait_procs(processes, timeout=20)
    return alive == []


class Lab:
    """One page of JupyterLab. `asked` and `complaints` hold what happened since the last `open`."""

    def __init__(self, browser: Browser, server: Server) -> None:
        self.server = server
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page: Page = browser.new_page(viewport=WIDE)
        self.page.set_default_timeout(SLOW_MS)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("websocket", lambda socket: self.asked.append(socket.url))
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(server.url.replace("/tree/index.ipynb", "") + "&reset")
        self.page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored", polling=POLL_MS)
        self.page.evaluate("() => jupyterapp.restored")

    def command(self, name: str, **arguments: Any) -> None:
        self.page.evaluate(
            "([name, args]) => jupyterapp.commands.execute(name, args).then(() => null)", [name, arguments]
        )

    def open(self, name: str) -> None:
        """Opens a notebook of the working copy and waits for its kernel."""
        self.asked.clear()
        self.complaints.clear()
        self.command("docmanager:open", path=name)
        self.wait_for(name)

    def wait_for(self, name: str) -> None:
        """Waits until this notebook is the one shown, with its kernel."""
        self.page.wait_for_function(_SHOWN, arg=name, polling=POLL_MS)
        self.page.wait_for_function(_IDLE, polling=POLL_MS)

    def follow(self, link: str) -> None:
        """Clicks the first link with this text in the notebook shown."""
        shown = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        shown.get_by_role("link", name=link, exact=True).first.click()

    def run_all(self) -> None:
        """Runs all cells. Returns when each has ended, which does not wait for what goes on in threads."""
        self.command("notebook:run-all-cells")
        self.page.wait_for_function(_IDLE, polling=POLL_MS)

    def close(self) -> None:
        """Closes all notebooks and ends their kernels."""
        self.page.evaluate(_CLOSE)

    def errors(self) -> list[str]:
        """Of the cells of the notebook shown: those that raised, and those that never ran."""
        found = []
        for number, cell in enumerate(self.page.evaluate(_CELLS)):
            begin = "".join(cell["source"]).strip().split("\n")[0]
            raised = [f"{out['ename']}: {out['evalue']}" for out in cell["outputs"] if out["output_type"] == "error"]
            if raised or (begin and cell["execution_count"] is None):
                found.append(f"code cell {number} ({begin}): {' '.join(raised) or 'not run'}")
        return found

    def strangers(self) -> set[str]:
        """The hosts other than this machine that the page asked for something."""
        addresses = [urlparse(url) for url in self.asked]
        return {a.netloc for a in addresses if a.scheme not in ("data", "blob") and a.hostname != "127.0.0.1"}

    def theme(self, name: str) -> None:
        self.command("apputils:change-theme", theme=THEMES[name])
        light = str(name == "light").lower()
        shown = "light => document.body.dataset.jpThemeLight === light"
        self.page.wait_for_function(shown, arg=light, polling=POLL_MS)

    def barriers(self) -> list[str]:
        """What axe finds serious or critical in the outputs of cells; what JupyterLab draws around them is its own."""
        outputs = ".jp-Notebook .jp-OutputArea-output"
        if not self.page.locator(outputs).count():
            return []
        found = Axe().run(self.page, context={"include": [[outputs]]}).response["violations"]
        return [
            f"{one['id']}: {node['html'][:200]}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]

    def explorer(self, number: int = 0) -> Explorer:
        """The explorers of the notebook shown, counted from the top."""
        root = self.page.locator(".jp-OutputArea-output .shardlab-explorer").nth(number)
        root.scroll_into_view_if_needed()
        return Explorer(self.page, root)


@dataclass(frozen=True)
class Explorer:
    """One explorer on the page, used by keyboard."""

    page: Page
    root: Locator

    def wait(self, *states: str, other_than: str = "") -> str:
        """Waits until it is in one of these states, showing another run than this one; the id of that run."""
        handle = self.root.element_handle()
        there = "([e, states, run]) => states.includes(e.dataset.state) && (!run || e.dataset.run !== run)"
        self.page.wait_for_function(there, arg=[handle, list(states), other_than], polling=POLL_MS)
        return self.root.get_attribute("data-run") or ""

    def slider(self, knob: str) -> Locator:
        return self.root.locator(f"[data-knob={knob}] input[type=range]")

    def move(self) -> tuple[str, str]:
        """(knob, key) that moves a slider to a legal stop and so starts a run."""
        for knob in self.root.locator(".knob.slider:not([data-knob=link_speed])").all():
            at = int(knob.locator("input").input_value())
            legal = knob.locator(".stops i").evaluate_all("stops => stops.map(stop => stop.className === 'legal')")
            key = "ArrowRight" if any(legal[at + 1 :]) else "ArrowLeft" if any(legal[:at]) else ""
            if key:
                return str(knob.get_attribute("data-knob")), key
        raise AssertionError("no slider can be moved")

    def press(self, knob: str, key: str) -> None:
        """Presses a key on the slider of a knob. It must be reachable, and say what it is."""
        slider = self.slider(knob)
        assert slider.evaluate("input => input.labels[0].textContent.trim()")
        slider.focus()
        self.page.keyboard.press(key)

    def drawn(self, run: str) -> None:
        """Waits until every figure under the explorer shows this run. There must be one."""
        output = self.root.locator("xpath=ancestor::*[contains(@class, 'jp-OutputArea-output')][1]").element_handle()
        there = """([output, run]) => { const figures = [...output.querySelectorAll('[data-drawn]')];
                   return figures.length > 0 && figures.every(f => f.dataset.drawn === run); }"""
        try:
            self.page.wait_for_function(there, arg=[output, run], polling=POLL_MS)
        except TimeoutError as error:
            raise AssertionError(f"the figures do not show {run}: {self._told(output)}") from error

    def _told(self, output: ElementHandle | None) -> str:
        """What the explorer says, and of every figure the run it shows and how it begins."""
        shown = """([root, output]) => [root, ...output.querySelectorAll('figure')].map(e =>
                   JSON.stringify({...e.dataset}) + ' ' + e.textContent.slice(0, 200)).join('; ')"""
        return str(self.page.evaluate(shown, [self.root.element_handle(), output]))
