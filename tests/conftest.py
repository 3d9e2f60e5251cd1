"""What all tests share."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Ctrl-C works even where the tests run in the background of a script, whose jobs are started to ignore it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
