"""Starting and ending runs from a page. The queue's worker carries them out, apart from the server."""

from __future__ import annotations

from collections.abc import Iterable

from dashboard.data import cached_runs
from dashboard.page.navigation import go
from dashboard.page.query_params import set_choice
from engine.job.job import Job
from lab.launcher.queue import Launch, LaunchQueue
from lab.running.execute import CheckedJob, checked
from lab.running.experiments import DEMO


def queue() -> LaunchQueue:
    """The queue of this folder of runs."""
    return LaunchQueue(cached_runs.store())


def start(wished: Iterable[CheckedJob], names: Iterable[str]) -> list[Launch]:
    """Puts jobs into the queue, in this order."""
    return [queue().put(one, name) for one, name in zip(wished, names, strict=True)]


def start_demo() -> None:
    """The demo's run, and the page that shows it live."""
    (launch,) = start([checked(Job.from_options(**DEMO), store=cached_runs.store())], ["Demo"])
    watch(launch.id)


def watch(run_id: str) -> None:
    """Goes to the page that shows a run live, whoever started it."""
    set_choice("live", run_id)
    go("live", live=run_id)
