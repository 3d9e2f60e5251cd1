"""The walk from a wish to a run: what somebody asks for is held against the rules once, whichever way it comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lab
from engine.job import rules
from engine.job.job import Job
from engine.program import handwritten
from lab.cli.parser import main
from lab.launcher.queue import LaunchQueue
from lab.launcher.worker_lock import WorkerLock
from lab.running.execute import checked
from lab.store.store import Store
from tests.lab.conftest import PretendedLaunch

PIPELINE: dict[str, Any] = {"pp": 2, "microbatches": 2, "batch": 8}
ORDER = "F0 F1 B0 B1\nF0 B0 F1 B1"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[object, str], list[object]]:
    """Calls of a function of a module, from now on."""

    def counted(module: object, name: str) -> list[object]:
        calls: list[object] = []
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **options: (calls.append(args), real(*args, **options))[1])
        return calls

    return counted


@pytest.mark.parametrize(
    "wish",
    [
        lambda: main(["run", "--dp", "2", "--json"]),
        lambda: main(["simulate", "--dp", "2", "--no-keep", "--json"]),
        lambda: lab.run(dp=2),
        lambda: lab.run(**PIPELINE, schedule=ORDER),
        lambda: lab.simulate(dp=2),
        lambda: lab.simulate(**PIPELINE, schedule=ORDER),
    ],
)
def test_a_job_is_held_against_the_rules_once(
    pretended: PretendedLaunch, counted: Callable[[object, str], list[object]], wish: Callable[[], object]
) -> None:
    calls = counted(rules, "check")
    wish()
    assert len(calls) == 1


@pytest.mark.parametrize("make", [lab.run, lab.simulate])
def test_a_written_schedule_is_checked_once(
    pretended: PretendedLaunch, counted: Callable[[object, str], list[object]], make: Callable[..., object]
) -> None:
    calls = counted(handwritten, "check_program")
    make(**PIPELINE, schedule=ORDER)
    assert len(calls) == 1


def test_a_schedule_file_is_checked_once(
    pretended: PretendedLaunch, counted: Callable[[object, str], list[object]]
) -> None:
    Path("order.txt").write_text(ORDER)
    calls = counted(handwritten, "check_program")
    assert main(["run", "--pp", "2", "--microbatches", "2", "--batch", "8", "--schedule-file", "order.txt"]) == 0
    assert len(calls) == 1


def test_what_is_set_in_the_explorer_is_held_against_the_rules_once(
    pretended: PretendedLaunch, counted: Callable[[object, str], list[object]]
) -> None:
    """At its knob; the prediction and the run take it as it is. A slider also asks for settings that it is not at."""
    calls = counted(rules, "check")
    explorer = lab.explore(("dp",), views=("memory",))
    assert explorer.settle() and explorer.run is not None
    explorer.turn("dp", 2)
    calls.clear()
    explorer.turn("tp", 2)
    assert explorer.settle() and explorer.run is not None
    assert explorer.run.job.plan.degrees == {"dp": 2, "tp": 2, "pp": 1}
    assert [job.plan for (job,) in calls].count(explorer.job.plan) == 1


def test_what_was_checked_before_enters_the_queue_as_it_is(
    tmp_path: Path, counted: Callable[[object, str], list[object]]
) -> None:
    store = Store(tmp_path)
    wished = checked(Job(), store=store)
    calls = counted(rules, "check_here")
    with WorkerLock.take(store.root) or pytest.fail("somebody has the lock"):
        launch = LaunchQueue(store).put(wished, "mine")
    assert (launch.state, launch.name, calls) == ("queued", "mine", [])
