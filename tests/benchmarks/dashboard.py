"""How long the dashboard makes people wait: `python -m tests.benchmarks.dashboard` (needs Chromium).

A store of 50 runs, two of them with some 80,000 boxes. First page and comparison are timed in a browser, from the click
to the last thing drawn; a look at a run that goes on in the server alone. Beside each stands the same for small runs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

import lab
from engine.job.job import Job
from engine.program.compile import compile_job
from engine.recording.parquet import write_recording
from lab.launcher.queue import LaunchQueue
from lab.store.folder import RunInfo
from lab.store.store import Store
from lab.store.summary import Outcome, summarise
from tests.browser.chromium import PATH, QUIET
from tests.lab.synthetic import LIFELIKE, synthetic

RUNS, LOOKS = 50, 30
BIG = Job.from_options(dp=4, tp=4, pp=4, layers=16, microbatches=48, batch=192, steps=1)
READY = """() => { const app = document.querySelector('[data-testid=stApp]');
  return app?.dataset.testScriptState === 'notRunning' && app.dataset.testConnectionState === 'CONNECTED'; }"""
DRAWN = ".sl-timeline[data-draw-ms]"


def fill(store: Store) -> None:
    """50 runs: one small real one, its copies, and two large ones."""
    small = lab.run(dp=2, zero=1)
    for number in range(RUNS - 3):
        copy = store.folder(f"{small.id[:-4]}c{number:03d}")
        shutil.copytree(small.folder, copy)
    for zero in (1, 3):
        _keep_large(store, Job.from_options(BIG, zero=zero))


def _keep_large(store: Store, job: Job) -> None:
    recording, program = synthetic(job, LIFELIKE, steps=1), compile_job(job)

    def write(folder: Path, info: RunInfo) -> None:
        write_recording(folder, recording)
        (folder / "program.txt").write_text(program.text())
        summary = summarise(info, job, program, recording, Outcome())
        (folder / "summary.json").write_text(json.dumps(summary))

    store.create(job, ("benchmark",), write, status="finished")


@contextmanager
def served(root: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "lab.cli", "dashboard", "--no-browser", "--json"]
    process = subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def seconds_of(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


def first_page(page: Page, url: str) -> None:
    page.goto(url)
    page.wait_for_selector("[data-testid=stDataFrame] canvas")
    page.wait_for_function(READY)


def comparison(page: Page, url: str, runs: list[str]) -> None:
    page.goto(url.replace("/?", f"/compare?runs={','.join(runs)}&"))
    page.locator(DRAWN).nth(1).wait_for(timeout=120_000)


def looks(root: Path) -> list[float]:
    """Seconds of the server for each look at a run of eight ranks that goes on, launched as the page Launch does it."""
    from streamlit.testing.v1 import AppTest

    queue = LaunchQueue(Store(root))
    launch = queue.add(Job.from_options(dp=2, tp=2, pp=2, steps=100_000), parity=False)
    try:
        at = AppTest.from_file(str(Path(lab.__file__).parent.parent / "dashboard/app.py"), default_timeout=60)
        at.query_params["live"] = launch.id
        at.run()
        at.switch_page("app_pages/live.py").run()
        while not at.metric or at.metric[0].value == "0":
            at.run()
        return [seconds_of(at.run) for _ in range(LOOKS)]
    finally:
        queue.cancel(launch.id)
        queue.wait(launch.id, 30)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        os.environ["SHARDLAB_RUNS"] = str(root)
        store = Store(root)
        fill(store)
        ids = [entry.info.id for entry in store.entries()]
        large, small = ids[:2], ids[2:4]
        with served(root) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=PATH, args=QUIET)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            first = [seconds_of(lambda: first_page(page, url)) for _ in range(4)]
            print(f"first page of {len(ids)} runs: {first[0]:.2f} s, then {median(first[1:]):.2f} s")
            for name, pair in (("small", small), ("large", large)):
                took = [seconds_of(lambda pair=pair: comparison(page, url, pair)) for _ in range(3)]
                print(f"compare two {name} runs: {took[0]:.2f} s, then {median(took[1:]):.2f} s")
            browser.close()
        took = looks(root)
        print(f"a look at a run that goes on: {1e3 * median(took):.0f} ms of the server, at most {1e3 * max(took):.0f}")


if __name__ == "__main__":
    main()
