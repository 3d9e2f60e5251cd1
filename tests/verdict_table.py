"""A table of verdicts: honest plans, and bugs put in on purpose, by steps and width of the model.

`python -m tests.verdict_table` prints it; it trains for minutes, so it is a command and no part of the suite. A row is
right if an honest plan is equal, perhaps until rounding grew, and if a bug is different, or equal where the zoo says
that the verdict alone cannot see it. The exit status says whether all are. `--jobs 200` adds honest jobs drawn at
random, legal mixtures of every option, which take turns with the widths and steps.

    python -m tests.verdict_table --hidden 64 --steps 3,30 --plans 0-3 --bugs none
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import lab
from engine.processes.launch import RunFailed
from tests.engine.legal import broken_rules
from tests.engine.random_jobs import PLAN, draw_jobs

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


@dataclass(frozen=True)
class Case:
    """equal: what the verdict has to say."""

    name: str
    options: dict[str, Any]
    equal: bool

    def right(self, state: str) -> bool:
        return state in (("equal", "rounding") if self.equal else ("different", "diverged"))


def cases(plans: Sequence[int], bugs: Sequence[str]) -> Iterator[Case]:
    """Those that are tried at every width and length."""
    for i in plans:
        yield Case(_words(HONEST[i]), HONEST[i], equal=True)
    for bug in lab.bugs():
        if bug.name in bugs or "all" in bugs:
            yield Case(f"bug {bug.name}", {**bug.options, "bug": bug.name}, equal=bool(bug.seen_in))


def drawn_cases(seed: int, count: int, sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[Case, int, int]]:
    """(case, hidden, steps) of legal jobs that mix all options. sizes: (hidden, steps), one after the other; hidden is
    brought to a multiple of the heads."""
    legal = (drawn for drawn in draw_jobs(seed, 2 * count) if not broken_rules(drawn.options) and drawn.order is None)
    for drawn, (hidden, steps) in zip(islice(legal, count), cycle(sizes), strict=False):
        options = {name: value for name, value in drawn.options.items() if name not in ("hidden", "steps", "lr")}
        words = _words({name: value for name, value in options.items() if PLAN.get(name, value) != value})
        yield Case(words, options, equal=True), hidden - hidden % options["heads"], steps


def _words(options: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in options.items())


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
    parser.add_argument("--plans", default=f"0-{len(HONEST) - 1}", help="which honest plans, from-to; empty for none")
    parser.add_argument("--bugs", default="all", help="which bugs, with commas; all or none")
    parser.add_argument("--jobs", type=int, default=0, help="how many honest jobs are drawn at random beside them")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    args = parser.parse_args(arguments)
    first, _, last = args.plans.partition("-")
    chosen = range(int(first), int(last or first) + 1) if first else ()
    print(f"{'':52}  hidden  steps  {'state':19}  loss ÷ allowed, norm ÷ allowed, weights ÷ allowed", flush=True)
    sizes = [(hidden, steps) for hidden in _numbers(args.hidden) for steps in _numbers(args.steps)]
    todo = [(case, *size) for size in sizes for case in cases(chosen, args.bugs.split(","))]
    wrong = 0
    for case, hidden, steps in [*todo, *drawn_cases(args.seed, args.jobs, sizes)]:
        right, words = row(case, hidden, steps)
        wrong += not right
        print(words, flush=True)
    print(f"{wrong} wrong")
    return int(wrong > 0)


def _numbers(words: str) -> list[int]:
    return [int(word) for word in words.split(",") if word]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
