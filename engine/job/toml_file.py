"""Reads the TOML files that people write: jobs and clusters."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from engine.plain_file import read_text


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a file; what: how the sentence calls it. Raises `ValueError` with the reason, in one sentence."""
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise ValueError(f"{what} {path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # not TOML, not text, nested or long beyond reason
        raise ValueError(f"{what} {path} is not TOML: {error}.") from error
