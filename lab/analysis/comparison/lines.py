"""Runs side by side: what was set differently, and what came out, against the first of them. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.job.axes import AXES
from engine.program.compile import program_of
from engine.recording.tables import CATEGORY_WORDS
from lab.analysis import CAUSES, PART_NAMES
from lab.analysis.comparison.run_metrics import Facts, bubble, facts, step_seconds
from lab.analysis.recorded_run import RecordedRun
from lab.verdict import Badge, verdict_of
from lab.wording import axis_name, axis_order, fault_words, mesh_words, nbytes, percent, seconds

__all__ = [
    "AGAINST_ONE_PROCESS",
    "CATEGORY_NAMES",
    "LETTERS",
    "MARKS",
    "MOST_COMPARED",
    "Line",
    "bubble",
    "lines",
    "names",
    "refuse",
    "refuse_other_than_runs",
    "settings",
    "step_seconds",
    "table",
    "verdicts",
]

MOST_COMPARED = 6
LETTERS = "ABCDEF"
MOST_NAMED = 3  # settings in the name of a run; a table has them all
STEADY = ("params", "grads", "optimizer")
"""Categories of memory that a rank holds all the time; of the others a comparison shows peaks."""
CATEGORY_NAMES = {name: words if name in STEADY else f"{words}, peak" for name, words in CATEGORY_WORDS.items()}

Better = Literal["lower", "higher"]
Verdict = Literal["better", "worse", "same", ""]
MARKS = {"better": "✔", "worse": "✘", "noise": "≈"}
"""Of what `Line.judged` says, wherever a comparison is shown."""
AGAINST_ONE_PROCESS = "against one process"
"""The head of the row of `verdicts`."""
MARKS_IN_WORDS = "✔ better, ✘ worse than A; ≈ within the noise between the runs' own steps"


@dataclass(frozen=True)
class Line:
    """One quantity of every run; None where a run has none. `words` says a value with its unit, `gap` a difference.

    better: which way is an improvement; None: neither is. noise: of each run, in the line's unit, see
    `lab.analysis.comparison.run_metrics`; None where a run cannot tell it; empty: the values are exact.
    """

    name: str
    values: tuple[float | None, ...]
    words: Callable[[float], str]
    gap: Callable[[float], str] | None = None
    better: Better | None = None
    unit: str = ""
    key: str = ""
    noise: tuple[float | None, ...] = ()

    def difference(self, i: int) -> float | None:
        """Of run i against the first, signed, in the line's unit; None for the first or where either has no value."""
        first, value = self.values[0], self.values[i]
        return None if i == 0 or first is None or value is None else value - first

    def relative(self, i: int) -> float | None:
        """The difference ÷ the first run's value; None where that is 0 too."""
        difference, first = self.difference(i), self.values[0]
        return None if difference is None or not first else difference / abs(first)

    def change(self, i: int) -> str:
        """Of run i against the first: signed, absolute and, but for shares, relative; "" if there is nothing to say."""
        difference = self.difference(i)
        relative = None if self.unit == "fraction" else self.relative(i)  # of 0.1 % to 1 %, "900 % more" says little
        if difference is None:
            return ""
        if self._looks_the_same(i):
            return "same"
        sign = "+" if difference > 0 else "−"
        part = "" if relative is None else f" ({sign}{percent(abs(relative))})"
        return f"{sign}{(self.gap or self.words)(abs(difference))}{part}"

    def within_noise(self, i: int) -> bool | None:
        """Whether the difference of run i is no larger than the noise of both runs together; None: cannot be told."""
        difference, noise = self.difference(i), (self.noise[0], self.noise[i]) if self.noise else (0.0, 0.0)
        if difference is None or noise[0] is None or noise[1] is None:
            return None
        return abs(difference) <= noise[0] + noise[1]

    def verdict(self, i: int) -> Verdict:
        """Of run i against the first; "same" within noise; "" where nothing is better, or nobody can tell."""
        difference = self.difference(i)
        if difference is None:
            return ""
        if self._looks_the_same(i):
            return "same"
        within = self.within_noise(i)
        if within is None or within or self.better is None:
            return "same" if within else ""
        return "better" if (difference > 0) == (self.better == "higher") else "worse"

    def judged(self, i: int) -> Literal["better", "worse", "noise", ""]:
        """What is to be said of the change of run i: a verdict, or that it is within noise; "" if neither is known."""
        if self.change(i) in ("", "same"):
            return ""
        if self.within_noise(i):
            return "noise"
        verdict = self.verdict(i)
        return "" if verdict == "same" else verdict

    def _looks_the_same(self, i: int) -> bool:
        """To the digits that are shown."""
        first, value = self.values[0], self.values[i]
        return first is not None and value is not None and self.words(value) == self.words(first)


def refuse(runs: Sequence[RecordedRun]) -> None:
    """Raises `ValueError` unless there are two to six runs with something to compare."""
    if not 2 <= len(runs) <= MOST_COMPARED:
        count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
        raise ValueError(f"{count} cannot be compared: name two to {MOST_COMPARED}.")
    refuse_other_than_runs(*runs)
    for run in runs:
        if not run.steps:
            raise ValueError(f"run {run.id} completed no step ({run.status}), so there is nothing to compare.")


def refuse_other_than_runs(*runs: object) -> None:
    """Raises `ValueError` for a name of a run in place of the run, or anything else."""
    for run in runs:
        if not all(hasattr(type(run), name) for name in ("job", "summary", "recording", "steps")):
            raise ValueError(f"{str(run)[:60]!r} is not a run: use what `lab.run` or `lab.load` returns.")


def settings(runs: Sequence[RecordedRun]) -> dict[str, tuple[Any, ...]]:
    """The options of the jobs that differ, with the value in each run; and "program" if one was written by hand."""
    options = [run.job.options() for run in runs]
    differ = {name: values for name in options[0] if len(set(values := tuple(o[name] for o in options))) > 1}
    programs = tuple("compiled" if run.program == program_of(run.job) else "by hand" for run in runs)
    return {**differ, "program": programs} if len(set(programs)) > 1 else differ


def names(runs: Sequence[RecordedRun]) -> list[str]:
    """A, B… with the plan, and what else is set differently, of each run."""
    differ = settings(runs)
    return [_name(i, run, differ) for i, run in enumerate(runs)]


def _name(i: int, run: RecordedRun, differ: dict[str, tuple[Any, ...]]) -> str:
    plan = run.job.plan
    shape = mesh_words(plan)
    told = {option: values[i] for option, values in differ.items() if option not in ("axes", "bug", *AXES.names)}
    own = [f"{option}={value}" for option, value in told.items()]
    fault = [fault_words(run.job.fault.bug)] if run.job.fault.bug else []
    return f"{LETTERS[i]}: {', '.join([shape, *own[:MOST_NAMED], *fault])}"


def verdicts(runs: Sequence[RecordedRun]) -> tuple[Badge, ...]:
    """Of each run, whether it equals one process; () if none was compared with it: a wrong run wins no comparison."""
    found = tuple(verdict_of(run.summary.get("parity") or {}).badge for run in runs)
    return found if any(badge.state != "none" for badge in found) else ()


def lines(runs: Sequence[RecordedRun]) -> list[Line]:
    """What came out: times, shares, bytes and loss, in the order in which they are asked for."""
    found = [facts(run) for run in runs]
    return [line for line in _lines(found) if any(line.values)]


def table(runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """The lines as plain values, ready for JSON: key, name, unit, better, values, and deltas against the first run.

    unit: s, fraction, B, tokens/s or nats. A delta holds `absolute` (in the unit), `relative` (÷ the first run's value,
    None where that is 0), `verdict` and `within_noise` (None: cannot be told); it is None where there is no difference
    to state, as of the first run.
    """
    return [
        {
            "key": line.key, "name": line.name, "unit": line.unit, "better": line.better, "values": list(line.values),
            "deltas": [_delta(line, i) for i in range(len(runs))],
        }
        for line in lines(runs)
    ]  # fmt: skip


def _delta(line: Line, i: int) -> dict[str, Any] | None:
    if line.difference(i) is None:
        return None
    return {
        "absolute": line.difference(i), "relative": line.relative(i), "verdict": line.verdict(i),
        "within_noise": line.within_noise(i),
    }  # fmt: skip


def _lines(found: Sequence[Facts]) -> Iterator[Line]:
    def line(key: str, name: str, unit: str, better: Better | None) -> Line:
        values = tuple(one.values.get(key) for one in found)
        noise = tuple(one.noise.get(key, 0.0) for one in found)
        words, gap = _WORDS[unit]
        return Line(name, values, words, gap, better, unit, key, noise)

    yield line("step_seconds", "step time", "s", "lower")
    yield line("tokens_per_second", "tokens a second", "tokens/s", "higher")
    yield line("bubble", "bubble, idle ÷ total", "fraction", "lower")
    for cause in CAUSES:
        yield line(f"idle_{cause}", f"idle, {PART_NAMES[cause]}", "fraction", "lower")
    for axis in axis_order():
        yield line(f"overlap_{axis}", f"communication hidden, {axis_name(axis)} axis", "fraction", "higher")
    yield line("memory", "peak memory of the fullest rank", "B", "lower")
    for category, name in CATEGORY_NAMES.items():
        yield line(f"memory_{category}", f"{name}, fullest rank", "B", "lower")
    for axis in axis_order():
        yield line(f"bytes_{axis}", f"bytes sent, {axis_name(axis)} axis, a rank and step", "B", "lower")
    # losses of different steps are no race
    yield line("loss", "loss of the last step", "nats", "lower" if len({one.last_step for one in found}) == 1 else None)


_WORDS: dict[str, tuple[Callable[[float], str], Callable[[float], str] | None]] = {
    "s": (seconds, None),
    "tokens/s": (lambda value: f"{value:,.0f}", None),
    "fraction": (percent, lambda share: f"{100 * share:.{0 if share >= 0.0995 else 1}f} points"),
    "B": (nbytes, None),
    "nats": (lambda value: f"{value:.4f}", None),
}
