"""What goes wrong by name: a wish that cannot be carried out, and a word that a part of the code does not know."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MOST_TOLD, LONGEST_WORD = 100, 400
"""Characters of a value, and of a path, that a refusal repeats."""


def told(value: object, most: int = MOST_TOLD) -> str:
    """A value as a refusal names it: in quotes where it is text, and of a long one the beginning."""
    try:
        words = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number with thousands of digits"
    if len(words) <= most:
        return words
    quote = words[-1] if words[-1] in "'\"" else ""
    return f"{words[: most - 30]}…{quote} ({len(words) - 2 * len(quote):,} characters)"


def short(text: object) -> str:
    """A sentence, or a path, whose overlong words have lost their middle."""
    return re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][:80]}…{word[0][-40:]}", str(text))


class UserError(ValueError):
    """What somebody asked for cannot be done. The message is one sentence: the knob, the rule, the nearest setting."""

    def __init__(self, message: object = "") -> None:
        super().__init__(short(message))


class JobRefused(UserError):
    """The job cannot be run as it is."""


class Unknown(ValueError):
    """A part of the code has met an axis, action kind, schedule… that it does not know.

    To leave the thing out or to treat it as another would be a wrong number that nobody sees.
    """

    def __init__(self, what: str, name: object, known: Iterable[object]) -> None:
        listed = [str(one) for one in known]
        near = difflib.get_close_matches(str(name), listed, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(listed) or 'none'}."
        super().__init__(f"there is no {what} called {told(str(name))}: {hint}")
        self.what, self.name = what, name
