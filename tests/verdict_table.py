"""A table of verdicts: honest plans, and bugs put in on purpose, by steps and width of the model.

`python -m tests.verdict_table` prints it; it trains for minutes, so it is a command and no part of the suite. A row is
right if an honest plan is equal, perhaps until rounding grew, and if a bug is different. The exit status says whether
all are.

    python -m tests.verdict_table --hidden 64 --steps 3,30 --plans 0-3 --bugs none
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lab
from engine.processes.launch import RunFailed

HONEST: tuple[dict[str, Any], ...] = (
    {"dp": 2},
    {"tp": 2},
    {"tp": 4, "microbatches": 2},
    {"pp": 2},
    {"pp": 4, "schedule": "zb-h1"},
    {"dp": 2, "zero": 3},
    {"dp": 4, "zero": 1, "microbatches": 2},
    {"tp": 2, "sequence_parallel": True},
    {"dp": 2, "tp": 2, "pp": 2},
    {"dp": 2, "pp": 2, "zero": 1, "schedule": "interleaved", "chunks": 2},
    {"pp": 2, "schedule": "gpipe", "recompute": "full", "microbatches": 16},
    {"dp": 2, "tp": 2, "zero": 2, "microbatches": 1},
)
BUGS: tuple[tuple[str, dict[str, Any]], ...] = ()
"""(what `lab.run(bug=…)` is called, the plan it is put into)."""


@dataclass(frozen=True)
class Case:
    name: str
    options: dict[str, Any]
    honest: bool

    def right(self, state: str) -> bool:
        return state in ("equal", "rounding") if self.honest else state in ("different", "diverged")


def cases(plans: Sequence[int], bugs: Sequence[str]) -> Iterator[Case]:
    for i in plans:
        words = " ".join(f"{name}={value}" for name, value in HONEST[i].items())
        yield Case(words, HONEST[i], honest=True)
    for name, plan in BUGS:
        if name in bugs or "all" in bugs:
            yield Case(f"bug {name}", plan | {"bug": name}, honest=False)


def row(case: Case, hidden: int, steps: int) -> tuple[bool, str]:
    """Whether the verdict is right, and the row that says what it rests on: |Δ| ÷ what is allowed, by quantity."""
    began = time.monotonic()
    try:
        found = lab.run(**{"hidden": hidden, "steps": steps, **case.options}).summary["parity"]
    except RunFailed as error:
        return False, f"{case.name:52}  {hidden:6}  {steps:5}  failed: {str(error).splitlines()[0]}"
    shares = [
        "no number" if one["off_by"] is None else f"{one['off_by'] / one['limit']:9.3f}"
        for one in found["limits"].values()
    ]
    right = case.right(found["state"])
    step = "" if found["first_step_out"] is None else f"step {found['first_step_out']}"
    words = [f"{case.name:52}", f"{hidden:6}", f"{steps:5}", f"{found['state']:9} {step:9}", *shares]
    return right, "  ".join([*words, f"{time.monotonic() - began:5.0f} s", "" if right else "WRONG"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.verdict_table", description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", default="64,256", help="widths, with commas")
    parser.add_argument("--steps", default="3,30,100", help="lengths of training, with commas")
    parser.add_argument("--plans", default=f"0-{len(HONEST) - 1}", help="which honest plans, from-to")
    parser.add_argument("--bugs", default="all", help="which bugs, with commas; all or none")
    args = parser.parse_args(arguments)
    first, _, last = args.plans.partition("-")
    chosen = range(int(first), int(last or first) + 1)
    print(f"{'':52}  hidden  steps  {'state':19}  loss ÷ allowed, norm ÷ allowed, weights ÷ allowed", flush=True)
    wrong = 0
    for hidden in map(int, args.hidden.split(",")):
        for steps in map(int, args.steps.split(",")):
            for case in cases(chosen, args.bugs.split(",")):
                right, words = row(case, hidden, steps)
                wrong += not right
                print(words, flush=True)
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
