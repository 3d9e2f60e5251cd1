"""The command line that starts a job, as one would type it."""

from __future__ import annotations

import shlex
from typing import Any

from engine.job.job import Job


def command_line(job: Job, *, command: str = "lab run", parity: bool = True) -> str:
    """`lab run --dp 2 --zero 1`: only what differs from the defaults."""
    usual, words = Job().options(), command.split()
    for name, value in job.options().items():
        if value != usual[name]:
            words += _words("--" + name.replace("_", "-"), value)
    return shlex.join(words if parity else [*words, "--no-parity"])


def _words(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, tuple):
        return [flag, ",".join(map(str, value))]
    return [flag, str(value)]
