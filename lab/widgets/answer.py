"""Predict, then reveal: which answer was right, and what to say to the one that was given. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CLOSE = 0.1
"""An answer in numbers counts as right within this part of the scale."""


@dataclass(frozen=True)
class Choices:
    """Possible answers, each with what to say to who chose it: why it tempts, or why it is right."""

    feedback: Mapping[str, str]

    def read(self, given: Any) -> str:
        """Raises `ValueError` for an answer that was not on offer."""
        if not isinstance(given, str) or given not in self.feedback:
            raise ValueError(f"{given!r} is not one of the answers: choose {', '.join(self.feedback)}.")
        return str(given)

    def judge(self, given: str, truth: Any) -> tuple[bool, str]:
        """(right?, words). Raises `ValueError` if the run's answer is none of those on offer."""
        if truth not in self.feedback:
            raise ValueError(f"the run says {truth!r}, which was not on offer: {', '.join(self.feedback)}.")
        right = given == truth
        words = f"Right: {truth}." if right else f"You said {given}; the run says {truth}."
        tempting = self.feedback[given]
        return right, "\n".join(filter(None, [words, tempting, "" if right else self.feedback[str(truth)]]))


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
        except (TypeError, ValueError):
            raise ValueError(f"{given!r} is not a number: write one from {self.low:g} to {self.high:g}.") from None
        if not (math.isfinite(value) and self.low <= value <= self.high):
            raise ValueError(f"{given} is off the scale: write a number from {self.low:g} to {self.high:g}.")
        return value

    def judge(self, given: float, truth: Any) -> tuple[bool, str]:
        """(within a tenth of the scale?, words)."""
        off = given - float(truth)
        right = abs(off) <= CLOSE * (self.high - self.low)
        far = f"{abs(off):.2g} too {'high' if off > 0 else 'low'}" if off else "just that"
        verdict = f"{'Close' if right else 'Not yet'}: you said {given:.3g}, {far}."
        told = f"The run says {float(truth):.3g} {self.unit}."
        return right, "\n".join(filter(None, [f"{verdict} {told}", self.why]))


Answers = Choices | Number


def answers(choices: Mapping[str, str] | None, number: tuple[Any, ...] | None) -> Answers:
    """The kind of answer asked for. Raises `ValueError` unless just one is given."""
    if (choices is None) == (number is None):
        raise ValueError("a question has either choices={answer: feedback} or number=(unit, low, high).")
    if choices is not None:
        if len(choices) < 2:
            raise ValueError("a question with one choice asks nothing: offer two or more.")
        return Choices(dict(choices))
    assert number is not None
    return Number(*number)
