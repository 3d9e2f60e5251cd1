"""Shardlab: run distributed training for real, prove it right, and see what happened.

    import lab
    run = lab.run(dp=2, tp=2, pp=2, zero=1)
    run.timeline()

Importing this is quick and loads neither torch nor plotly; both come when they are first needed. Ranks have torch in
processes of their own; `simulate` and `plan` load it here the first time that a model of some shape is counted.

Its rooms import from the ground up: wording and typical_seconds, analysis, store, running and views, then `facade`,
launcher, learning and live, then widgets and cli; none of them imports this file. Start with the functions below, then
`facade.py` and `running/execute.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.shadowed import check_unhidden

check_unhidden("engine")  # before anything of it is imported

from engine.loading import import_whole  # noqa: E402
from lab.facade import Run  # noqa: E402

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping

    from engine.job.bugs import Bug
    from engine.job.job import Job
    from engine.planner.result import Search
    from engine.program.program import Program
    from engine.program.schedules.text import Written
    from lab.learning.exercises.shown import Shown
    from lab.learning.exercises.verdict import Verdict
    from lab.running.execution import OnProgress
    from lab.widgets import Compared, Explorer, Question, Views
    from lab.widgets.views.plot import Plot

__all__ = [
    "Run",
    "bugs",
    "check",
    "compare",
    "exercises",
    "explore",
    "hint",
    "load",
    "picture",
    "plan",
    "predict",
    "run",
    "runs",
    "simulate",
    "solution",
    "task",
    "view",
]


def run(
    *,
    job: Job | str | Path | None = None,
    program: Program | None = None,
    parity: bool = True,
    on_progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
    **options: Any,
) -> Run:
    """Trains a small GPT on real processes under any plan and returns what happened.

    options: the names of `lab run --help` with underscores, such as `dp=2, tp=2, zero=1, layers=8`. job: a
    `Job` or a TOML file to start from. program: one written by hand, instead of the compiled one. `schedule`
    may be one written by hand too: text with a line for each pipeline rank, as in "F0 F1 B0 B1", or a
    function (pipeline ranks, micro-batches, chunks) → text; see `engine.program.schedules.text`. parity: compare
    with one process. on_progress is called with a `lab.running.execution.Progress` as the run goes on; setting
    `cancel` stops it.

    Raises `JobRefused` with one sentence for a job that cannot run, `ValueError` for a program or schedule
    that would not train it, `RunFailed` for a run that did not end well.
    """
    import_whole("lab.running.execute")
    from lab.running.execute import run_job

    by_hand = _by_hand(program, options)
    return Run.of(run_job(_job(job, options), parity=parity, by_hand=by_hand, on_progress=on_progress, cancel=cancel))


def simulate(
    *,
    model: str | None = None,
    job: Job | str | Path | None = None,
    program: Program | None = None,
    keep: bool = False,
    **options: Any,
) -> Run:
    """Says what a plan would do on a described cluster, without starting a process: the same `Run` as of `run`.

    model: a published one, such as "gpt3-175b", with its batch and precision; without it the model is small, as in
    `run`. options: as in `run`, a `schedule` written by hand included. cluster: by default "toy-2x4" for small models
    in fp32 on at most 8 ranks, else "a100-dgx". Of a published model each micro-batch is one sequence unless
    `microbatches` says otherwise. keep: store it as a run folder with status "simulated".

    Raises `JobRefused` with one sentence for what makes no sense. A job that exceeds the memory does make sense:
    `summary["fits"]` is then false.
    """
    import_whole("lab.running.simulation", "engine.prediction.simulate")
    from lab.running import simulation

    by_hand = _by_hand(program, options)
    return Run.of(simulation.simulate(model, job, by_hand, keep, **options))


def _job(base: Job | str | Path | None, options: dict[str, Any]) -> Job:
    import_whole("engine.job.job")
    from engine.job.job import Job

    if isinstance(base, (str, Path)):
        return Job.from_toml(Path(base), **options)
    return Job.from_options(base, **options)


def _by_hand(program: Program | None, options: dict[str, Any]) -> Program | Written | None:
    """What is to be run in place of what the plan compiles to; a schedule among the options is taken out of them."""
    if program is not None:
        from engine.program.program import Program
        from lab.running.arguments import one_of

        one_of("program", program, (Program,), "a Program, as `Program.parse` makes it")
    schedule = options.get("schedule")
    if not callable(schedule) and not (isinstance(schedule, str) and len(schedule.split()) > 1):
        return program  # the schedule, if there is one, is named
    if program is not None:
        raise ValueError("program and a schedule written by hand both say what to run: leave one of the two out.")
    written: Written = options.pop("schedule")
    return written


def bugs() -> tuple[Bug, ...]:
    """The faults that `run(bug=…)` puts into a run on purpose: each with its `name`, the `options` of a small job that
    shows it, and, where the comparison with one process cannot see it, in what it is `seen_in`.
    """
    from engine.job.bugs import BUGS

    return tuple(BUGS)


def plan(*, model: str | Job, cluster: str = "a100-dgx", gpus: int, refine: int = 5, **fixed: Any) -> Search:
    """Every legal plan of a model on `gpus` devices of a described cluster, the fastest that fit first.

    model: a preset's name or a `Job`. fixed: options that keep their values, such as `tp=4, zero=1`. refine: how many
    of the best are replayed. Loads torch into this process. Raises `JobRefused` with one sentence.
    """
    import_whole("lab.running.planning", "engine.planner.search")
    from lab.running.planning import plan

    return plan(model, cluster, gpus, refine=refine, **fixed)


def load(name: str | int = "latest") -> Run:
    """A run from the store: its id, the beginning or end of one, `latest`, or -1 for the newest, -2…"""
    from lab.facade import load

    return load(name)


def runs() -> list[Run]:
    """All runs in the store, newest first. The store is the folder SHARDLAB_RUNS or `./runs`."""
    from lab.facade import runs

    return runs()


def view(
    run: Run, *views: str, predicted: Run | None = None, rank: int | None = None, step: int | None = None
) -> Views:
    """Linked views of a run in a notebook: a rank chosen in one is marked in all.

    views: of "timeline", "grid", "activity", "memory", "memory_over_time", "communication", "matrix", "bubble",
    "bubble_curve", "shards" and "schedules"; default: timeline and grid. predicted: a replay or simulation of the same
    job, whose outlines are laid over the timeline. rank: chosen at first. Raises `ValueError` for an unknown view.
    """
    import_whole("lab.widgets")
    from lab import widgets

    return widgets.view(run, views, predicted, rank, step)


def compare(*runs: Run) -> Compared:
    """Two to six runs side by side in a notebook, against the first: settings and numbers that differ, what came of it
    in words, and timelines that zoom together. Raises `ValueError` for fewer, more, or one that completed no step.
    """
    import_whole("lab.widgets")
    from lab import widgets

    return widgets.Compared(runs)


def explore(
    knobs: tuple[str, ...] = (),
    views: tuple[str, ...] = ("timeline", "grid", "memory"),
    *,
    job: Job | str | Path | None = None,
    **options: Any,
) -> Explorer:
    """The explorer: turn a knob, see at once what is predicted, and a breath later what really ran.

    knobs: of "dp", "tp", "pp", "microbatches", "chunks", "schedule", "zero", "sequence_parallel", "cluster" and
    "link_speed"; default: all. views: as in `view`. job, options: where it starts, as in `run`; two steps by default.
    Each setting starts a real run in the background, the newest wins. Raises `JobRefused` for a start that cannot run.
    """
    import_whole("lab.widgets")
    from lab import widgets

    return widgets.explore(_several(knobs), _several(views), job, options)


def _several(names: tuple[str, ...] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def predict(
    key: str,
    question: str,
    *,
    choices: Mapping[str, str] | None = None,
    number: tuple[Any, ...] | None = None,
    truth: Callable[[Run], Any],
    run: Callable[[], Run],
    then: Callable[[Run], Any] | None = None,
) -> Question:
    """Predict, then reveal: the run starts when the question is answered, and only then shows.

    key: under which the answer is kept for this learner. choices: {answer: what to say to who chose it}, or number:
    (unit, low, high, what to say). truth: the right choice, or number, read from the run. run: makes it. then: what to
    show of it, by default its timeline and grid.
    """
    import_whole("lab.widgets")
    from lab import widgets

    return widgets.ask(key, question, choices, number, truth, run, then)


def picture(figure: Callable[..., Any], *args: Any, how: str = "", **options: Any) -> Plot:
    """A figure of `lab.views.figures` in a notebook, in the colours of its page: `lab.picture(figures.zero_savings,
    runs)`.

    figure: is called with `args`, `options` and `theme`, "light" or "dark". how: how to read it, shown below it.
    """
    import_whole("lab.widgets")
    from lab import widgets

    return widgets.picture(figure, args, how, options)


def exercises() -> Shown:
    """All exercises, with those that you have passed."""
    from lab.learning.exercises import table

    return table()


def task(name: str) -> Shown:
    """What an exercise asks for, with the code to fill in."""
    from lab.learning.exercises import task

    return task(name)


def check(name: str, answer: Any, seconds: float = 20.0) -> Verdict:
    """Tries an answer to an exercise on cases you have not seen, and says what is wrong and where.

    answer: a function with the parameters of `lab.task(name)`; of "own_schedule" also text. It runs in processes of
    its own, so one that raises, exits, crashes, takes too much memory or more than `seconds` is told so in the verdict.
    """
    from lab.learning.exercises import check

    return check(name, answer, seconds)


def hint(name: str, number: int = 1) -> Shown:
    """A hint for an exercise; the later ones say more."""
    from lab.learning.exercises import hint

    return hint(name, number)


def solution(name: str) -> Shown:
    """A solution of an exercise, as source."""
    from lab.learning.exercises import solution

    return solution(name)


def __getattr__(name: str) -> Any:
    """`from lab import figures`, as notebooks write it, loads plotly only then."""
    if name == "figures":
        import_whole("lab.views.figures")
        from lab.views import figures

        return figures
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
