"""Exercise: the 1F1B order of one pipeline rank."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from lab.learning.exercises.exercise import Exercise, Passed, Wrong, described, wants_function
from lab.learning.exercises.sandbox import run_apart

if TYPE_CHECKING:
    from lab.learning.exercises.grader_process import Answer

NAME = "schedule_1f1b"
CASES = ((2, 4), (4, 8), (3, 7), (4, 2), (5, 5), (1, 3))  # (pipeline ranks, micro-batches)
WORD = re.compile(r"([FB])(\d+)")

TASK = """
**Write the 1F1B order for one pipeline rank** (Narayanan et al. 2021, figure 4). `rank` counts from 0, the first
stage, to `ranks` − 1. Return its order as text: `"F0 F1 B0 B1"` runs the forwards of micro-batches 0 and 1, then
their backwards.

1F1B runs a backward as soon as it can, so a rank r of p never holds more than p − r micro-batches (forwards begun
less backwards done). It takes as little time as GPipe: (m + p − 1) times a forward and a backward.
"""
BLANK = """
def schedule_1f1b(rank, ranks, microbatches):
    ...
    return order  # such as "F0 F1 B0 B1"
"""
HINTS = (
    "The last rank can run B0 right after F0: its order is F0 B0 F1 B1 … What does the rank before it do meanwhile?",
    "Three parts: some forwards to warm up, then one forward and one backward in turn, then the backwards left over.",
    "The first backward comes when its micro-batch has gone down to the last rank and back: count the forwards that fit"
    " in, and mind that there may be fewer micro-batches than that.",
)


def solution(rank: int, ranks: int, microbatches: int) -> str:
    warmup = min(ranks - 1 - rank, microbatches)
    order = [f"F{k}" for k in range(warmup)]
    for k in range(microbatches - warmup):
        order += [f"F{k + warmup}", f"B{k}"]
    order += [f"B{k}" for k in range(microbatches - warmup, microbatches)]
    return " ".join(order)


def judge(answer: Any, seconds: float) -> Passed:
    wants_function(NAME, answer, "rank", "ranks", "microbatches")
    (told,) = run_apart(answer, f"{__name__}:grade", limit=seconds, arguments={"cases": CASES})
    words = f"No rank holds too much, none waits needlessly, and nothing deadlocks, in {told['cases']} pipelines."
    return Passed(words, told)


def grade(answer: Answer, cases: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    for p, m in cases:
        orders = []
        for rank in range(p):
            where = f"rank {rank} of {p} with {m} micro-batches"
            orders.append(_order(answer(rank, p, m, where=where), m, where))
        _check_runs(orders, p, m)
        for rank, order in enumerate(orders):
            _check_held(order, rank, p, m)
        _check_time(orders, p, m)
    return {"cases": len(cases)}


def _order(found: Any, m: int, where: str) -> list[tuple[str, int]]:
    """The order as (letter, micro-batch); every micro-batch forward and backward once, and in this order."""
    if not isinstance(found, str):
        raise Wrong(f'On {where}, it must return text such as "F0 F1 B0 B1", and returned {described(found)}.')
    order = []
    for word in found.split():
        if (match := WORD.fullmatch(word)) is None:
            raise Wrong(f"On {where}, {word!r} in {found!r} cannot be read: write F0 or B0.")
        order.append((match[1], int(match[2])))
    counts = Counter(order)
    for letter, name in (("F", "forward"), ("B", "backward")):
        for k in range(m):
            if counts[letter, k] != 1:
                times = "is missing" if not counts[letter, k] else f"comes {counts[letter, k]} times"
                raise Wrong(f"On {where}, the {name} of micro-batch {k} {times} in {found!r}.")
    if foreign := [f"{letter}{k}" for letter, k in order if k >= m]:
        raise Wrong(f"On {where}, {foreign[0]} in {found!r} is one too many: micro-batches are 0 to {m - 1}.")
    place = {word: i for i, word in enumerate(order)}
    for k in range(m):
        if place["B", k] < place["F", k]:
            raise Wrong(f"On {where}, B{k} comes before F{k} in {found!r}: a backward needs what its forward kept.")
    return order


def _check_runs(orders: list[list[tuple[str, int]]], p: int, m: int) -> None:
    from engine.job.job import Job
    from engine.program.checks.check import ProgramError
    from engine.program.handwritten import schedule_program

    try:
        schedule_program(Job.from_options(pp=p, microbatches=m, layers=p, batch=m), _text(orders))
    except ProgramError as error:
        raise Wrong(f"With {p} ranks and {m} micro-batches the ranks cannot run together: {error}") from None


def _check_held(order: list[tuple[str, int]], rank: int, p: int, m: int) -> None:
    """In flight, and the warm-up: a rank that begins its backwards too early waits for them."""
    where, held, most = f"On rank {rank} of {p} with {m} micro-batches", 0, p - rank
    for letter, k in order:
        held += 1 if letter == "F" else -1
        if held > most:
            raise Wrong(f"{where}, it holds {held} micro-batches after F{k}: 1F1B holds at most p − r = {most}.")
    warm = next(i for i, (letter, _) in enumerate(order) if letter == "B")
    if warm < min(most, m):
        first = f"its first backward comes after {warm} forward{'s' if warm > 1 else ''}"
        raise Wrong(
            f"{where}, {first}: the micro-batch is still on its way then, and the rank could run more meanwhile."
        )


def _check_time(orders: list[list[tuple[str, int]]], p: int, m: int) -> None:
    from engine.job.job import Job
    from engine.program.dryrun import dry_run
    from engine.program.handwritten import schedule_program

    job = Job.from_options(pp=p, microbatches=m, layers=p, batch=m, partition=(1,) * p)
    took, needed = dry_run(schedule_program(job, _text(orders))).makespan, 3 * (m + p - 1)
    if took > needed:
        raise Wrong(
            f"With {p} ranks and {m} micro-batches the step takes {took} slots (a forward 1, a backward 2), and 1F1B"
            f" takes 3 · (m + p − 1) = {needed}. The orders are:\n{_text(orders)}"
        )


def _text(orders: list[list[tuple[str, int]]]) -> str:
    return "\n".join(" ".join(f"{letter}{k}" for letter, k in order) for order in orders)


EXERCISE = Exercise(
    name=NAME,
    line="Write the 1F1B order of one pipeline rank",
    task=TASK,
    blank=BLANK,
    hints=HINTS,
    solution=solution,
    judge=judge,
)
