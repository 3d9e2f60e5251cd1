"""Whatever a learner asks for either runs and equals one process, or is refused in words before any process starts.

Every test run draws new jobs. `SHARDLAB_JOBS_SEED=N` draws those of an earlier one.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter

import pytest

from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.job.rules import check, check_here
from engine.program.checks.check import ProgramError
from engine.program.handwritten import schedule_program
from tests.engine.legal import broken_rules, order_trains, says
from tests.engine.random_jobs import Drawn, draw_jobs
from tests.engine.running import train

COUNT, SEED = 200, "SHARDLAB_JOBS_SEED"


def test_two_hundred_random_jobs_run_with_parity_or_are_refused_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get(SEED) or secrets.randbelow(10**6))
    counts = Counter[str]()
    for number, drawn in enumerate(draw_jobs(seed, COUNT)):
        try:
            counts.update(_tried(drawn))
        except Exception as error:
            again = f"{SEED}={seed} draws it again"
            pytest.fail(f"job {number} of {COUNT}, {drawn.options}\n{drawn.text}\n{again}\n{error!r}")
    with capsys.disabled():
        print(f"\nrandom jobs, {SEED}={seed}: {dict(sorted(counts.items()))}")
    assert counts["ran"] >= 150 and counts["two axes or more"] >= 60, (seed, counts)
    assert min(counts[what] for what in ("recompute", "by hand", "three axes", "refused")) >= 5, (seed, counts)


def _tried(drawn: Drawn) -> list[str]:
    """Runs the job or hears its refusal, each where the rules of `tests.engine.legal` say so; returns what it was."""
    options, broken = drawn.options, broken_rules(drawn.options)
    try:
        job = Job.from_options(**options)
        check(job)
        check_here(job, 0, 1)
    except JobRefused as refused:
        said = str(refused)
        assert broken, f"refused though no rule is broken: {said}"
        assert "\n" not in said and said.endswith("."), said
        assert any(all(says(knob, options, said) for knob in rule.knobs) for rule in broken), (said, broken)
        return ["refused"]
    assert not broken, f"accepted though it breaks {broken}"
    if drawn.order is None:
        train(**options).assert_parity()
        return _kinds(drawn)
    valid = order_trains(drawn.order, options["schedule"], options["pp"], options["chunks"])
    try:
        program = schedule_program(job, drawn.text)
    except ProgramError as refused:
        assert not valid, f"a valid order is refused: {refused}"
        assert "<-- here" in str(refused), refused
        return ["refused", "refused order"]
    assert valid, "an order with a circular wait is accepted"
    train(program=program, **options).assert_parity()
    return _kinds(drawn)


def _kinds(drawn: Drawn) -> list[str]:
    axes = sum(drawn.options[axis] > 1 for axis in ("dp", "tp", "pp"))
    found = {
        "ran": True, "two axes or more": axes >= 2, "three axes": axes == 3,
        "recompute": drawn.options["recompute"] != "none", "by hand": drawn.order is not None,
    }  # fmt: skip
    return [kind for kind, is_so in found.items() if is_so]
