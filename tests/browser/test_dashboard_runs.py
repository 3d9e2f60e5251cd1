"""The table of runs in a real browser: names, stars, tags, filters, deleting and taking it back, damaged runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.browser.dashboard import Server, Window, until

Open = Callable[..., Window]
SCRIPT, BOLD = "<img src=x onerror=alert(1)>", "**x**"
ALL_COLUMNS = {"width": 2200, "height": 900}


def ids(runs: Path) -> list[str]:
    """The older one first."""
    return sorted(path.parent.name for path in runs.glob("2*/run.json"))


def comes_in(runs: Path, of: str, created: str) -> str:
    """A copy of a run, created then, as if somebody else had made it."""
    name = f"{created[:10].replace('-', '')}-{created[11:19].replace(':', '')}-copy-ffff"
    shutil.copytree(runs / of, runs / f".{name}")
    info = json.loads((runs / of / "run.json").read_bytes())
    (runs / f".{name}" / "run.json").write_text(json.dumps(info | {"created": created}), encoding="utf-8")
    (runs / f".{name}").rename(runs / name)
    return name


def note(page: Window, name: str, *tags: str) -> None:
    """Gives the chosen run a name and tags."""
    page.button("Name and tags").click()
    page.page.get_by_label("Name", exact=True).wait_for()
    page.ready()
    page.page.get_by_label("Name", exact=True).fill(name)
    for tag in tags:
        page.page.get_by_role("combobox", name="Tags").last.fill(tag)
        page.page.keyboard.press("Enter")
        page.page.keyboard.press("Tab")  # which closes the list
    page.button("Save").click()
    page.button("Save").wait_for(state="hidden")


def shown(page: Window, *expected: str) -> None:
    """Waits until the table has these runs, in this order."""
    until(lambda: [row["Id"] for row in page.rows()] == list(expected))


def newest_picked(server: Server, window: Open) -> tuple[Window, str, str]:
    """A page with the two runs of the store, newest first, of which the newest is chosen."""
    old, new = ids(server.runs)
    page = window(server, viewport=ALL_COLUMNS)
    page.open()
    shown(page, new, old)
    page.pick(0)
    return page, new, old


def test_runs_are_named_starred_tagged_filtered_deleted_and_brought_back(dashboard: Server, window: Open) -> None:
    page, new, old = newest_picked(dashboard, window)
    page.button("Star").click()
    until(lambda: page.rows()[0].get("★") == "★")
    note(page, "The large one", "talk")
    until(lambda: page.rows()[0].get("Name") == "The large one" and page.rows()[0].get("Tags") == "talk")
    assert page.rows()[0]["chosen"] == "true", "who has named a run goes on with it"

    page.fill("Search", "zero=1")
    shown(page, old)
    page.fill("Search", "large")
    shown(page, new)
    page.fill("Search", "")
    shown(page, new, old)
    page.page.get_by_text("Starred only").click()
    shown(page, new)
    again = window(dashboard, viewport=ALL_COLUMNS)
    again.page.goto(page.page.url)
    again.ready()
    shown(again, new)
    page.page.get_by_text("Starred only").click()
    shown(page, new, old)

    page.pick(0)
    page.button("Delete").click()
    shown(page, old)
    assert not (dashboard.runs / new).exists()
    page.button("Undo").click()
    shown(page, new, old)
    assert (dashboard.runs / new).is_dir() and page.rows()[0]["Name"] == "The large one"


def test_a_run_that_comes_in_does_not_take_the_place_of_the_chosen_one(dashboard: Server, window: Open) -> None:
    page, new, old = newest_picked(dashboard, window)
    page.button("Delete").wait_for()
    newest = comes_in(dashboard.runs, old, "2199-01-01T00:00:00.000+00:00")
    shown(page, newest, new, old)
    until(lambda: [row["chosen"] for row in page.rows()] == ["false", "true", "false"])
    page.button("Delete").click()
    shown(page, newest, old)


def test_a_run_is_shown_by_its_name_letter_for_letter_whatever_that_is(dashboard: Server, window: Open) -> None:
    page, new, old = newest_picked(dashboard, window)
    note(page, SCRIPT)
    until(lambda: page.rows()[0].get("Name") == SCRIPT)
    page.open()
    shown(page, new, old)
    page.pick(1)
    note(page, BOLD)
    until(lambda: page.rows()[1].get("Name") == BOLD)
    page.open("compare", runs=f"{new},{old}")
    page.says("loss of the last step", exact=True)
    main = page.page.get_by_test_id("stMain").inner_text()
    for letter, name in (("A", SCRIPT), ("B", BOLD)):
        assert main.count(f"{letter}: {name}") >= 3, "in the legend, above the timeline, in the figures"
    assert page.box("Baseline").input_value().startswith(SCRIPT)
    page.open("pipeline", run=old)
    page.timeline()
    assert page.box("Run").input_value().startswith(BOLD)
    assert page.page.locator("img[src=x]").count() == 0


def test_a_damaged_run_says_so_and_hides_no_other(dashboard: Server, window: Open) -> None:
    old, new = ids(dashboard.runs)
    damaged = comes_in(dashboard.runs, old, "2020-01-01T00:00:00.000+00:00")
    (dashboard.runs / damaged / "run.json").write_text('{"job": ', encoding="utf-8")
    page = window(dashboard, viewport=ALL_COLUMNS)
    page.open()
    shown(page, new, old, damaged)
    assert page.rows()[2]["Status"] == "⚠ corrupt" and page.rows()[2]["Message"].startswith("run.json cannot be read")
    page.pick(2)
    page.page.get_by_test_id("stAlert").get_by_text("run.json cannot be read").wait_for()
    page.open("pipeline", run=damaged)
    page.says("This run's folder is damaged")
    page.choose("Run", "ZeRO-3")
    page.timeline()
    page.ready()
    assert page.query["run"] == new


def test_a_link_to_an_unknown_run_says_so_in_plain_text(dashboard: Server, window: Open) -> None:
    page = window(dashboard)
    wished = "![x](http://example.invalid/x.png) **x**"
    page.open("pipeline", run=wished)
    notice = page.page.get_by_test_id("stAlert")
    assert f"names a run that is not in this store: '{wished}'" in " ".join(notice.inner_text().split())
    page.timeline()
