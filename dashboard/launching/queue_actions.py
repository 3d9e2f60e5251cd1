"""Starting and ending runs from a page. The queue's worker carries them out, apart from the server."""

from __future__ import annotations

from dashboard.page.navigation import go
from dashboard.page.query_params import set_choice
from dashboard.runs import cached_runs
from engine.job.job import Job
from lab.launcher.queue import Launch, LaunchQueue
from lab.running.experiments import DEMO


def queue() -> LaunchQueue:
    return LaunchQueue(cached_runs.store())


def start(jobs: list[Job], names: list[str], *, parity: bool = True) -> list[Launch]:
    """Puts jobs into the queue, in this order. Raises `JobRefused` if one of them cannot run; then none is started."""
    from lab.running.execute import refuse

    for job in jobs:
        refuse(job, parity=parity, store=cached_runs.store())
    return [queue().add(job, parity, name) for job, name in zip(jobs, names, strict=True)]


def start_demo() -> None:
    """The demo's run, and the page that shows it live."""
    (launch,) = start([Job.from_options(**DEMO)], ["Demo"])
    watch(launch.id)


def watch(run_id: str) -> None:
    """Goes to the page that shows a run live, whoever started it."""
    set_choice("live", run_id)
    go("live", live=run_id)
