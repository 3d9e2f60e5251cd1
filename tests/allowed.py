"""What a test needs of the system and not every user may do."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def not_allowed(what: str) -> NoReturn:
    """Ends a test: a plain user goes without it, since no other way shows the same without harm to others. CI does not:
    there it fails."""
    if "CI" in os.environ:
        pytest.fail(f"CI must be able to {what}")
    pytest.skip(f"this user may not {what} here")
