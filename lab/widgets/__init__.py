"""What a learner touches in a notebook: views, the explorer, questions. `lab.view`, `lab.explore` and kin make them.

It may import every room of the lab but the command line. Start with the functions below, then `views/linked.py` and
`explorer/explorer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ipywidgets

from engine.job.job import Job
from lab.analysis.comparison.lines import refuse_other_than_runs
from lab.facade import Run
from lab.learning.exercises.exercise import described
from lab.running.simulation import default_name
from lab.widgets.explorer.explorer import Explorer
from lab.widgets.question.answer import answers
from lab.widgets.question.question import Question
from lab.widgets.views.compared import Compared
from lab.widgets.views.linked import DEFAULT, Views
from lab.widgets.views.plot import Plot

__all__ = ["Compared", "Explorer", "Question", "Views", "ask", "explore", "picture", "view"]

EXPLORED = {"steps": 2}
"""Two steps: the first warms up, the second is shown."""


def view(run: Run, views: tuple[str, ...], predicted: Run | None, rank: int | None, step: int | None) -> Views:
    """See `lab.view`."""
    refuse_other_than_runs(run, *([] if predicted is None else [predicted]))
    shown = Views(views or DEFAULT)
    shown.show(run, predicted=predicted, runs=(run,), step=step)
    if rank is not None:
        if rank not in range(run.job.world_size):
            raise ValueError(f"rank={rank} is not of this run: its ranks are 0 to {run.job.world_size - 1}.")
        shown.select(rank)
    return shown


def explore(
    knobs: tuple[str, ...], views: tuple[str, ...], job: Job | str | Path | None, options: dict[str, Any]
) -> Explorer:
    """See `lab.explore`."""
    if isinstance(job, (str, Path)):
        chosen = Job.from_toml(Path(job), **options)
    else:
        chosen = Job.from_options(job, **(({} if job else EXPLORED) | options))
    if not chosen.hardware.cluster:
        chosen = Job.from_options(chosen, cluster=default_name(chosen))
    return Explorer(chosen, knobs, views)


def picture(figure: Callable[..., Any], args: tuple[Any, ...], how: str, options: dict[str, Any]) -> Plot:
    """See `lab.picture`."""
    if not callable(figure):
        raise ValueError(f"a figure is a function that makes one, as in figures.memory; this is {described(figure)}.")
    shown = Plot(getattr(figure, "__name__", type(figure).__name__))
    shown.show(lambda theme: figure(*args, **options, theme=theme), "", how)
    shown.complete()
    return shown


def ask(
    key: str,
    question: str,
    choices: Mapping[str, str] | None,
    number: tuple[Any, ...] | None,
    truth: Callable[[Run], Any],
    run: Callable[[], Run],
    then: Callable[[Run], ipywidgets.Widget] | None,
) -> Question:
    """See `lab.predict`."""
    return Question(
        key, question, answers(choices, number), truth, run, then or (lambda found: view(found, (), None, None, None))
    )
