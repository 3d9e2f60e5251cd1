"""What goes wrong by name: a wish that cannot be carried out, and a word that a part of the code does not know."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """What somebody asked for cannot be done. The message is one sentence: the knob, the rule, the nearest setting."""


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
        super().__init__(f"there is no {what} called {str(name)!r}: {hint}")
        self.what, self.name = what, name
