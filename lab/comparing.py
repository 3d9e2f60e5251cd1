"""Runs side by side: what was set differently, and what came out, against the first of them. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lab.analysis.memory import KEY
from lab.runs import Run
from lab.wording import AXIS_NAMES, nbytes, percent, seconds

MOST_COMPARED = 6
CATEGORY_NAMES = {
    "params": "parameters",
    "grads": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations, peak",
    "gathered": "gathered parameters, peak",
    "buffers": "buffers, peak",
}


@dataclass(frozen=True)
class Line:
    """One quantity of every run; None where a run has none. `words` says a value with its unit, `gap` a difference."""

    name: str
    values: tuple[float | None, ...]
    words: Callable[[float], str]
    gap: Callable[[float], str] | None = None

    def change(self, i: int) -> str:
        """Of run i against the first: signed, absolute and relative; "" where there is nothing to say."""
        first, value = self.values[0], self.values[i]
        if i == 0 or first is None or value is None:
            return ""
        if self.words(value) == self.words(first):
            return "same"
        sign = "+" if value > first else "−"
        relative = "" if not first else f" ({sign}{percent(abs(value - first) / abs(first))})"
        return f"{sign}{(self.gap or self.words)(abs(value - first))}{relative}"


def refuse(runs: Sequence[Run]) -> None:
    """Raises `ValueError` unless there are two to six runs with something to compare."""
    if not 2 <= len(runs) <= MOST_COMPARED:
        raise ValueError(f"{len(runs)} runs cannot be compared: name two to {MOST_COMPARED}.")
    refuse_other_than_runs(*runs)
    for run in runs:
        if not run.steps:
            raise ValueError(f"run {run.id} completed no step ({run.status}), so there is nothing to compare.")


def refuse_other_than_runs(*runs: object) -> None:
    """Raises `ValueError` for a name of a run in place of the run, or anything else."""
    for run in runs:
        if not isinstance(run, Run):
            raise ValueError(f"{str(run)[:60]!r} is not a run: use what `lab.run` or `lab.load` returns.")


def settings(runs: Sequence[Run]) -> dict[str, tuple[Any, ...]]:
    """The options of the jobs that differ, with the value in each run."""
    options = [run.job.options() for run in runs]
    return {name: values for name in options[0] if len(set(values := tuple(o[name] for o in options))) > 1}


def lines(runs: Sequence[Run]) -> list[Line]:
    """What came out: times, shares, bytes and loss, in the order in which they are asked for."""
    return [line for line in _lines(runs) if any(line.values)]


def _lines(runs: Sequence[Run]) -> Iterator[Line]:
    def line(name: str, value: Callable[[Run], float | None], words: Callable[[float], str], gap: Any = None) -> Line:
        return Line(name, tuple(value(run) for run in runs), words, gap)

    yield line("step time", step_seconds, seconds)
    yield line("bubble, idle ÷ total", bubble, percent, lambda share: f"{100 * share:.0f} points")
    yield line("peak memory of the fullest rank", partial(_most, "total_peak"), nbytes)
    for category, name in CATEGORY_NAMES.items():
        yield line(f"{name}, fullest rank", partial(_most, KEY[category]), nbytes)
    for axis, name in AXIS_NAMES.items():
        yield line(f"bytes sent, {name} axis, a rank and step", partial(_sent, axis), nbytes)
    yield line("loss of the last step", lambda run: run.steps[-1]["loss"], lambda value: f"{value:.4f}")


def step_seconds(run: Run) -> float:
    """The time of a step; of a real run the median, its first step left out."""
    if run.status == "simulated":
        return float(run.summary["step_seconds"])
    times = sorted(row["seconds"] for row in run.steps[1:] or run.steps)
    return float(times[(len(times) - 1) // 2])


def bubble(run: Run) -> float | None:
    """As measured in a real run, as replayed in a simulated one."""
    found: float | None = run.summary["bubble"]["replayed" if run.status == "simulated" else "measured"]
    return found


def _most(key: str, run: Run) -> float:
    return float(max((row[key] for row in run.summary["memory"]["per_rank"]), default=0))


def _sent(axis: str, run: Run) -> float:
    return float(sum(row["logical_bytes"] for row in run.summary["communication"] if row["axis"] == axis))
