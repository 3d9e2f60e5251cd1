"""Runs that are launched from the dashboard in a real browser: cancelled, outliving their page and server, and many."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from playwright.sync_api import expect

from lab.facade import Run, runs
from lab.store.notes import read_notes
from lab.store.stored_run import Store
from tests.browser.dashboard import ROOT, SLOW_MS, Server, Window, until

Open = Callable[..., Window]
Serve = Callable[[Path], Server]
LONG = 100_000  # steps: hours


def start(page: Window, steps: int, **knobs: str) -> None:
    """Starts one run from the form of the Launch page. knobs: what is typed into a field, by its name in a job."""
    page.open("launch")
    page.button("One process").click()
    page.says("What every run is compared with")
    fields = {"dp": "Data parallel (dp)", "pp": "Pipeline parallel (pp)", "name": "Name"}
    for knob, text in {"dp": "1", **knobs}.items():
        page.fill(fields[knob], text)
    page.fill("Steps", str(steps))
    expect(page.metric("Processes")).to_have_text(str(int(knobs.get("dp", 1)) * int(knobs.get("pp", 1))))


def go(page: Window) -> None:
    page.button("Start").last.click()
    page.heading("Live").wait_for()


def goes_on_behind(server: Server) -> None:
    """Lets the page have the cores first: a run of hours would else take half of them while pages load."""
    for process in server.others():
        with suppress(psutil.NoSuchProcess):
            process.nice(15)


def steps_done(page: Window) -> int:
    """As the live page says."""
    found = re.match(r"[\d,]+", page.metric("Step").first.inner_text())
    assert found
    return int(found[0].replace(",", ""))


def goes_on(page: Window, after: int = 0) -> int:
    """Waits for a step after this one; how many are done then."""
    page.metric("Step").first.wait_for()
    until(lambda: steps_done(page) > after)
    return steps_done(page)


def is_over(server: Server) -> None:
    """Nothing of the store's runs is left on this machine, the queue's worker neither."""
    _, left = psutil.wait_procs(server.others(), timeout=SLOW_MS / 1000)
    assert left == [] and server.others() == []


def found(root: Path) -> list[Run]:
    return runs(Store(root))


def test_a_cancelled_run_leaves_no_process_and_until_then_the_page_keeps_its_zoom(fresh: Server, window: Open) -> None:
    page = window(fresh)
    start(page, LONG, dp="2")
    go(page)
    done = goes_on(page)
    goes_on_behind(fresh)
    assert len(fresh.others()) >= 4, "the worker, what it starts ranks from, and the ranks"
    timeline = page.timeline()
    timeline.press("w", "w", "w", "w", *"aaaaaaaaaaaaaaaaaaaa")  # its beginning, which shorter steps have too
    until(lambda: timeline.window.startswith("0.0000-"))
    kept, title = timeline.window, page.page.locator(".sl-title").inner_text()
    goes_on(page, done + 1)
    until(lambda: page.page.locator(".sl-title").inner_text() != title)
    assert timeline.window == kept
    page.button("Cancel this run").click()
    page.says("Stopped after")
    is_over(fresh)
    (run,) = found(fresh.runs)
    assert (run.status, run.message) == ("stopped", "stopped by the user") and len(run.steps) > done


def test_a_run_outlives_its_page_and_the_server_and_is_found_again(serve: Serve, tmp_path: Path, window: Open) -> None:
    first = serve(tmp_path / "runs")
    page = window(first)
    start(page, LONG, dp="2", name="for long")
    go(page)
    done = goes_on(page)
    goes_on_behind(first)
    page.page.reload()
    page.ready()
    done = goes_on(page, done)
    (run,) = found(first.runs)
    page.page.goto("about:blank")
    ended, said = first.stop()
    assert ended == 0 and run.id in said and first.others()

    second = serve(first.runs)
    later = window(second)
    later.open("live")
    assert later.box("Run").input_value().startswith("for long · ")
    goes_on(later, done)
    later.go("Runs")
    later.says("running · dp=2 tp=1 pp=1")
    (row,) = later.rows()
    assert (row["Name"], row["Status"]) == ("for long", "▶ running")
    later.button("Cancel").click()
    until(lambda: later.rows()[0]["Status"] == "■ stopped")
    is_over(second)
    assert [each.id for each in found(second.runs)] == [run.id]


def test_two_dashboards_and_a_terminal_launch_at_once_and_nothing_is_mixed_up(
    fresh: Server, serve: Serve, window: Open
) -> None:
    one, two = window(fresh), window(serve(fresh.runs))
    start(one, 2, dp="2", name="by window one")
    start(two, 3, pp="2", name="by window two")
    command = [sys.executable, "-m", "lab.cli", "run", "--tp", "2", "--steps", "4", "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SHARDLAB_RUNS": str(fresh.runs)}
    terminal = subprocess.Popen(command, env=environment, cwd=fresh.runs.parent, text=True, stdout=subprocess.PIPE)
    go(one)
    go(two)
    said, _ = terminal.communicate(timeout=SLOW_MS / 1000)
    for page, words in ((one, "dp=2 tp=1 pp=1"), (two, "dp=1 tp=1 pp=2")):
        expect(page.page.get_by_text("Equal to one process")).to_contain_text(words, timeout=SLOW_MS)
    every = {read_notes(run.folder).name: run for run in found(fresh.runs)}
    shapes = {name: (run.job.plan.dp, run.job.plan.tp, run.job.plan.pp) for name, run in every.items()}
    assert shapes == {"by window one": (2, 1, 1), "by window two": (1, 1, 2), "": (1, 2, 1)}
    assert {name: len(run.steps) for name, run in every.items()} == {"by window one": 2, "by window two": 3, "": 4}
    assert json.loads(said)["run"] == every[""].id
    assert all(run.status == "finished" and run.summary["parity"]["passed"] for run in every.values())
    for page in (one, two):
        page.go("Runs")
        until(lambda page=page: sorted(row["Name"] for row in page.rows()) == sorted(every))
