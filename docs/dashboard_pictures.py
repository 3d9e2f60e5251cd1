"""Makes the pictures of the dashboard: `python -m docs.dashboard_pictures` (needs Chromium and the test extras).

Each is a page as a visitor sees it, of real runs made here and now, in light and dark.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

import lab
from docs.pictures import IMAGES
from lab.store.notes import write_notes
from tests.browser.chromium import QUIET

READY = """() => { const app = document.querySelector('[data-testid=stApp]');
  return app?.dataset.testScriptState === 'notRunning' && app.dataset.testConnectionState === 'CONNECTED'
    && !document.querySelector('[data-testid=stSkeleton]'); }"""
HEIGHTS = {"runs": 620, "launch": 1240, "live": 1150, "compare": 1150, "planner": 1000}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.environ["SHARDLAB_RUNS"] = str(Path(folder) / "runs")
        addresses = _addresses()
        command = [sys.executable, "-m", "lab.cli", "dashboard", "--no-browser", "--json"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        long = subprocess.Popen(
            [sys.executable, "-m", "lab.cli", "run", "--dp", "2", "--pp", "2", "--steps", "5000"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        try:
            url = json.loads(server.stdout.readline())["url"]
            for theme in ("light", "dark"):
                for name, address in addresses.items():
                    _take(browser, url.replace("/?", f"/{address}&"), name, theme)
        finally:
            browser.close()
            for process in (long, server):
                process.send_signal(signal.SIGINT)
                process.wait()


def _addresses() -> dict[str, str]:
    """Makes the runs that are shown; the address of each page, to which the token is added."""
    lab.run(dp=2, tp=2, pp=2, zero=1)  # the first run pays for starting up
    pair = [lab.run(dp=4, zero=zero, layers=8, steps=6) for zero in (1, 3)]
    for run, name in zip(pair, ("ZeRO-1", "ZeRO-3"), strict=True):
        write_notes(run.folder, name=name, tags=["ZeRO"])
    lab.run(pp=4, layers=8, microbatches=8)
    runs = ",".join(run.id for run in pair)
    return {"runs": "?", "launch": "launch?", "live": "live?", "compare": f"compare?runs={runs}", "planner": "planner?"}


def _take(browser: Browser, url: str, name: str, theme: Literal["light", "dark"]) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": HEIGHTS[name]}, color_scheme=theme)
    page.goto(url)
    page.wait_for_function(READY, timeout=90_000)
    page.wait_for_timeout(8000 if name == "live" else 3000)  # the run is to be under way, figures drawn
    page.screenshot(path=IMAGES / f"dashboard-{name}-{theme}.png", timeout=90_000)
    page.close()


if __name__ == "__main__":
    main()
