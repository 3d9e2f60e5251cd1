"""A long fuzz: jobs drawn at random through the rules, the compiler and the simulation, and others through real runs.

`python -m tests.fuzz` says what came of them; it computes for many minutes, so it is a command and no part of the
suite, which does the same with 200 jobs (`tests.engine.test_random_jobs`). Every legal job must be simulated and
obey its own prediction, every other one must be refused in one sentence; a real run must be equal to one process, and
what it held and sent must be what was predicted. The exit status says whether all were so.

    python -m tests.fuzz --simulated 1000 --real 50 --seed 7
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import lab
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.job.rules import check
from engine.prediction.peak_memory import predicted_memory
from engine.program.checks.check import ProgramError
from engine.program.handwritten import schedule_program
from engine.program.program import Program
from tests.engine.legal import Rule, broken_rules, order_trains
from tests.engine.random_jobs import Drawn, draw_jobs

Summary = dict[str, Any]
ONLY_REAL: dict[str, Any] = {"dropout": 0.0, "precision": "fp32"}
"""What a simulation may have otherwise."""


def simulated(drawn: Drawn) -> str:
    """Simulates a job, or hears its refusal where there must be one; which of both it was."""
    return _tried(drawn, broken_rules(drawn.options | ONLY_REAL), _simulate)


def real(drawn: Drawn) -> str:
    """Runs a job on processes, or hears its refusal where there must be one; which of both it was."""
    return _tried(drawn, broken_rules(drawn.options), _run)


def _simulate(job: Job, program: Program | None) -> Summary:
    found = lab.simulate(job=job, program=program, cluster="a100-dgx").summary
    held = {row["rank"]: {k: v for k, v in row.items() if k != "stands_for"} for row in found["memory"]["per_rank"]}
    for row in predicted_memory(job, program):
        assert held.get(row["rank"], row) == row, (held[row["rank"]], row)
    return found


def _run(job: Job, program: Program | None) -> Summary:
    found = lab.run(job=job, program=program).summary
    assert found["parity"]["passed"] and found["parity"]["state"] in ("equal", "rounding"), found["parity"]
    assert found["memory"]["per_rank"] == found["memory"]["predicted_per_rank"], "memory is not as predicted"
    return found


def _tried(drawn: Drawn, broken: Sequence[Rule], attempt: Callable[[Job, Program | None], Summary]) -> str:
    own, order = drawn.options, drawn.order
    legal = not broken and (order is None or order_trains(order, own["schedule"], own["pp"], own["chunks"]))
    try:
        job = Job.from_options(**own)
        check(job)
        found = attempt(job, None if order is None else schedule_program(job, drawn.text))
    except (JobRefused, ProgramError) as refused:
        assert not legal, f"refused though legal: {refused}"
        return "refused"
    assert legal, "accepted though it breaks a rule"
    for row in found["communication"]:
        assert row["logical_bytes"] == row["predicted_bytes"], row
    return "done" if order is None else "done by hand"


def _all(what: str, attempt: Callable[[Drawn], str], seed: int, count: int) -> int:
    """How many of `count` jobs failed; each is told with what draws it again."""
    began, counts = time.monotonic(), Counter[str]()
    for number, drawn in enumerate(islice(draw_jobs(seed, count), count)):
        try:
            counts[attempt(drawn)] += 1
        except Exception as error:
            counts["FAILED"] += 1
            print(f"{what} {number} of seed {seed}: {drawn.options}\n{drawn.text}\n{error!r}", flush=True)
        if number % 500 == 499 or number + 1 == count:
            print(f"{what}: {dict(counts)} in {time.monotonic() - began:.0f} s, seed {seed}", flush=True)
    return counts["FAILED"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--simulated", type=int, default=10_000, help="how many jobs are simulated")
    parser.add_argument("--real", type=int, default=500, help="how many jobs run on processes")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    args = parser.parse_args(arguments)
    failed = _all("simulated", simulated, args.seed, args.simulated)
    failed += _all("real", real, args.seed + 1, args.real)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
