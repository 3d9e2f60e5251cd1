"""The command that a page shows does the same as the page."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from engine.job.job import Job
from lab.cli.options import job_of, parse
from lab.cli.parser import _parser
from lab.wording import command_line

JOBS: list[dict[str, Any]] = [
    {},
    {"dp": 2, "tp": 2, "pp": 2, "zero": 1},
    {"pp": 2, "schedule": "interleaved", "chunks": 2, "partition": (1, 1, 1, 1)},
    {"tp": 2, "sequence_parallel": True, "overlap": False, "lr": 0.01, "recompute": "full"},
    {"text": "my file; rm -rf.txt", "cluster": "toy-2x4"},
]


@pytest.mark.parametrize("options", JOBS, ids=str)
def test_the_command_line_says_the_very_job(options: dict[str, Any]) -> None:
    job = Job.from_options(**options)
    words = shlex.split(command_line(job))
    assert words[:2] == ["lab", "run"]
    assert job_of(parse(_parser(), words[1:])) == job


def test_only_what_differs_from_the_defaults_is_said() -> None:
    assert command_line(Job()) == "lab run"
    assert command_line(Job.from_options(dp=4, zero=3), parity=False) == "lab run --dp 4 --zero 3 --no-parity"
