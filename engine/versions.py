"""Which version of a package is installed."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version


@lru_cache
def version(package: str) -> str:
    """As its metadata say, which need no import of it; "unknown" if it is not installed. Read once in a process:
    every run asks for several, and each would take milliseconds.
    """
    try:
        return _version(package)
    except PackageNotFoundError:
        return "unknown"
