"""What makes an exercise, and the two ways in which an answer can fall short."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class Wrong(Exception):
    """The answer is not right: the message says what and where. `details` go into the verdict."""

    def __init__(self, words: str, **details: Any) -> None:
        super().__init__(words)
        self.details = details


@dataclass(frozen=True)
class Passed:
    """The answer is right: what was found, in words, and numbers for the verdict."""

    words: str
    details: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise. task: its statement in Markdown. blank: the code to fill in. solution: a function that passes.

    judge: (answer, seconds that it may take) → `Passed`; it raises `Wrong`, and runs the learner's code in other
    processes only.
    """

    name: str
    line: str
    task: str
    blank: str
    hints: tuple[str, ...]
    solution: Callable[..., Any]
    imports: str = ""  # what the solution's source needs to stand alone
    judge: Callable[[Any, float], Passed]

    def solution_source(self) -> str:
        """The solution as the learner would write it, under the name of the exercise."""
        source = textwrap.dedent(inspect.getsource(self.solution))
        source = source.replace(f"def {self.solution.__name__}(", f"def {self.name}(", 1)
        return f"{self.imports}\n\n\n{source}" if self.imports else source


def wants_function(name: str, answer: Any, *parameters: str) -> None:
    """Raises `Wrong` unless `answer` can be called with these parameters by position."""
    wanted = f"{name}({', '.join(parameters)})"
    if not callable(answer):
        raise Wrong(f"The answer must be a function {wanted}; this is {described(answer)}.")
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):  # some that are written in C do not tell
        return
    try:
        signature.bind(*parameters)
    except TypeError:
        own = getattr(answer, "__name__", name)
        raise Wrong(f"It is called as {wanted}, and yours is {own}{signature}: it cannot take these.") from None


def described(value: Any) -> str:
    """What a value is, in a few words: None, an int, a str."""
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
