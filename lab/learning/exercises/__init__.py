"""Exercises with checkers: a file an exercise, and the frame that runs answers in processes of their own.

A check tries the answer on cases that the learner has not seen, and says what is wrong and where, not how to do it. It
may import `running`, `store` and the engine. Start with `exercise.py`, then one of `tasks`.
"""

from __future__ import annotations

import difflib
from typing import Any

from engine.job.errors import told
from lab.learning.exercises.exercise import Exercise, Wrong
from lab.learning.exercises.sandbox import LIMIT
from lab.learning.exercises.shown import Shown, python
from lab.learning.exercises.verdict import Verdict
from lab.learning.progress import Learner
from lab.store.store import StoreError

NAMES = (
    "column_parallel_linear",
    "column_parallel_backward",
    "ring_all_reduce",
    "partition_layers",
    "schedule_1f1b",
    "own_schedule",
)
"""In the order in which one learns."""


MOST_SECONDS = 3600


def find(name: Any) -> Exercise:
    """Raises `ValueError` that names the nearest exercise."""
    from importlib import import_module

    if name not in NAMES:
        near = difflib.get_close_matches(str(name), NAMES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(NAMES)}."
        raise ValueError(f"there is no exercise called {told(name)}: {hint}")
    exercise: Exercise = import_module(f"lab.learning.exercises.tasks.{name}").EXERCISE
    return exercise


def check(name: str, answer: Any, seconds: float = LIMIT, learner: Learner | None = None) -> Verdict:
    """Tries `answer` and keeps a pass in the learner's progress. See `lab.check`."""
    try:
        exercise = find(name)
    except ValueError as error:
        return Verdict(str(name), False, _sentence(str(error)))
    if not isinstance(seconds, (int, float)) or not 0 < seconds <= MOST_SECONDS:
        words = f"It cannot be tried for seconds={str(seconds)[:60]}: use a number above 0, at most {MOST_SECONDS}."
        return Verdict(name, False, words)
    try:
        passed = exercise.judge(answer, seconds)
    except Wrong as wrong:
        return Verdict(name, False, str(wrong), wrong.details)
    return Verdict(name, True, passed.words + _kept(learner or Learner(), name), passed.details)


def _kept(learner: Learner, name: str) -> str:
    """Keeps a pass; "" or, where it cannot be kept, why."""
    try:
        learner.record("exercise", name, {"passed": True})
    except StoreError as error:
        return f" This is not kept: {error}"
    return ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def table(learner: Learner | None = None) -> Shown:
    """All exercises, one line each, and which are done."""
    done = (learner or Learner()).all("exercise")
    rows = [f"| {'✔ done' if name in done else '○ open'} | `{name}` | {find(name).line} |" for name in NAMES]
    return Shown("\n".join(["| | exercise | what to do |", "|---|---|---|", *rows]))


def task(name: str) -> Shown:
    """What the exercise asks, with the lines to begin with. Raises `ValueError` for an unknown name."""
    exercise = find(name)
    check_line = f"`lab.check({name!r}, {'your_answer' if name == 'own_schedule' else name})` tries it."
    return Shown(f"{exercise.task.strip()}\n\n{python(exercise.blank)}\n\n{check_line}")


def hint(name: str, number: int = 1) -> Shown:
    """Raises `ValueError` for a hint that does not exist."""
    hints = find(name).hints
    if number not in range(1, len(hints) + 1):
        raise ValueError(f"number={told(number)}: {name} has hints 1 to {len(hints)}.")
    more = f" For more: `lab.hint({name!r}, {number + 1})`." if number < len(hints) else ""
    return Shown(f"**Hint {number} of {len(hints)}.** {hints[number - 1]}{more}")


def solution(name: str) -> Shown:
    """One way to write it. Raises `ValueError` for an unknown name."""
    return Shown(python(find(name).solution_source()))
