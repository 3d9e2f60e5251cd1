"""What tests of exercises have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lab.learning.exercises import check

Answer = Callable[..., Any]


def says(name: str, answer: Any, words: str) -> None:
    verdict = check(name, answer)
    assert not verdict.passed
    assert re.search(words, verdict.words), verdict.words
