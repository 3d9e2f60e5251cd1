"""Predict, then reveal: which answer was right, and what to say to the one that was given. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLOSE = 0.1
"""An answer in numbers counts as right within this part of the scale."""
MOST_SHOWN = 60  # characters of an answer that is not understood


@dataclass(frozen=True)
class Choices:
    """Possible answers, each with what to say to who chose it: why it tempts, or why it is right."""

    feedback: Mapping[str, str]

    def read(self, given: Any) -> str:
        """Raises `ValueError` for an answer that was not on offer."""
        if not isinstance(given, str) or given not in self.feedback:
            raise ValueError(f"{in_short(given)} is not one of the answers: choose {', '.join(self.feedback)}.")
        return given

    def judge(self, given: str, truth: Any) -> tuple[bool, str]:
        """(right?, words). Raises `ValueError` if the run's answer is none of those on offer."""
        if not isinstance(truth, str) or truth not in self.feedback:
            raise ValueError(f"the run says {in_short(truth)}, which was not on offer: {', '.join(self.feedback)}.")
        right = given == truth
        words = f"Right: {truth}." if right else f"You said {given}; the run says {truth}."
        tempting = self.feedback[given]
        return right, "\n".join(filter(None, [words, tempting, "" if right else self.feedback[truth]]))


@dataclass(frozen=True)
class Number:
    """An answer on a scale from `low` to `high` in `unit`. why: what to say whatever was answered."""

    unit: str
    low: float
    high: float
    why: str = ""

    def read(self, given: Any) -> float:
        """Raises `ValueError` for what is no number on the scale."""
        try:
            value = float(given)
        except Exception:  # of whatever it is
            words = f"{in_short(given)} is not a number: write one from {self.low:g} to {self.high:g}."
            raise ValueError(words) from None
        if not self.low <= value <= self.high:
            raise ValueError(f"{in_short(given)} is off the scale: write a number from {self.low:g} to {self.high:g}.")
        return value

    def judge(self, given: float, truth: Any) -> tuple[bool, str]:
        """(within a tenth of the scale?, words). Raises `ValueError` if the run's answer is no number."""
        told = number_of(truth)
        if told is None:
            raise ValueError(f"the run says {in_short(truth)}, which is no number.")
        off = given - told
        right = abs(off) <= CLOSE * (self.high - self.low)
        far = f"{abs(off):.2g} too {'high' if off > 0 else 'low'}" if off else "just that"
        verdict = f"{'Close' if right else 'Not yet'}: you said {given:.3g}, {far}."
        return right, "\n".join(filter(None, [f"{verdict} The run says {told:.3g} {self.unit}.", self.why]))


Answers = Choices | Number


def answers(choices: Mapping[str, str] | None, number: tuple[Any, ...] | None) -> Answers:
    """The kind of answer asked for. Raises `ValueError` unless just one is given, and makes sense."""
    if (choices is None) == (number is None):
        raise ValueError("a question has either choices={answer: feedback} or number=(unit, low, high).")
    if choices is not None:
        return _choices(choices)
    assert number is not None
    return _scale(number)


def _choices(choices: Any) -> Choices:
    if not isinstance(choices, Mapping) or not all(isinstance(answer, str) for answer in choices):
        raise ValueError('choices are text, each with what to say to who chose it: {"1/4": "That is…", …}.')
    if len(choices) < 2:
        raise ValueError("a question with one choice asks nothing: offer two or more.")
    return Choices(dict(choices))


def _scale(number: Any) -> Number:
    form = 'number is (unit, low, high, what to say), as in ("%", 0, 100)'
    if not isinstance(number, Sequence) or not 3 <= len(number) <= 4:
        raise ValueError(f"{form}.")
    unit, low, high, *why = number
    ends = [number_of(end) for end in (low, high)]
    if ends[0] is None or ends[1] is None or not ends[0] < ends[1]:
        raise ValueError(f"{form}: the low end must be a number below the high end.")
    return Number(str(unit), ends[0], ends[1], *why)


def number_of(value: Any) -> float | None:
    """`value` as a finite number; None if it is none."""
    try:
        found = float(value)
    except Exception:  # of whatever a learner's function returns
        return None
    return found if math.isfinite(found) else None


def in_short(value: Any) -> str:
    """A value as Python writes it, cut where it is long; of one that cannot be written its kind."""
    try:
        text = repr(value)
    except Exception:
        return f"something of type {type(value).__name__}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
