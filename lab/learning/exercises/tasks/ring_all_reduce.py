"""Exercise: a ring all-reduce, run on real processes, with the bytes that each rank sent counted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lab.learning.exercises.exercise import Exercise, Passed, Wrong, described, wants_function
from lab.learning.exercises.sandbox import run_apart

if TYPE_CHECKING:
    import torch

    from lab.learning.exercises.grader_process import Answer

NAME = "ring_all_reduce"
RANKS = (2, 3, 4)
SHAPES = ((10,), (3, 5), (2,), (61,))  # on some rank counts none of them divides, and (2,) has empty pieces

TASK = """
**Sum a tensor over all ranks, on a ring.** Every rank holds a tensor of the same shape, of S bytes. At the end
every rank must hold the sum over all ranks.

You may send with `exchange(data, to, source)` only: it sends the tensor `data` to rank `to` and meanwhile receives
one from rank `source`, which it returns. Any shape can be sent, also of no elements.

On a ring each rank sends to the next rank only. No rank may send more than 2(n−1)/n · S (pieces differ by at most
one element where n does not divide the size), in 2(n−1) exchanges. It is run on 2, 3 and 4 processes, with sizes
that n does not divide.
"""
BLANK = """
import torch

def ring_all_reduce(tensor, rank, world_size, exchange):
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    ...
    return total  # of tensor's shape
"""
HINTS = (
    "Split the flat tensor into n pieces. First let each piece go round once while every rank adds its own part to it.",
    "After n−1 exchanges each rank holds one piece that is complete: that was a reduce-scatter. Which piece is it?",
    "An all-gather follows: the complete pieces go round once more, and each replaces what was there. `tensor_split(n)`"
    " makes n pieces of any size.",
)


def solution(tensor: torch.Tensor, rank: int, world_size: int, exchange: Callable[..., torch.Tensor]) -> torch.Tensor:
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    total = tensor.clone().flatten()
    pieces = total.tensor_split(world_size)  # views of total
    for step in range(world_size - 1):  # reduce-scatter: what comes in is added
        received = exchange(pieces[(rank - step) % world_size], after, before)
        pieces[(rank - step - 1) % world_size].add_(received)
    for step in range(world_size - 1):  # all-gather: what comes in is complete
        received = exchange(pieces[(rank + 1 - step) % world_size], after, before)
        pieces[(rank - step) % world_size].copy_(received)
    return total.view(tensor.shape)


def judge(answer: Any, seconds: float) -> Passed:
    wants_function(NAME, answer, "tensor", "rank", "world_size", "exchange")
    score = []
    for ranks in RANKS:
        reports = run_apart(answer, f"{__name__}:grade", limit=seconds, ranks=ranks, arguments={"shapes": SHAPES})
        for shape, told in zip(SHAPES, zip(*(report["cases"] for report in reports), strict=True), strict=True):
            _check_traffic(ranks, shape, told)
        most = max(case["sent"] for report in reports for case in report["cases"] if case["shape"] == SHAPES[-1])
        size = math.prod(SHAPES[-1])
        score.append(
            {"ranks": ranks, "elements": size, "sent ÷ S": most / size, "2(n−1)/n": 2 * (ranks - 1) / ranks,
             "exchanges": 2 * (ranks - 1)}
        )  # fmt: skip
    words = "Every rank of 2, 3 and 4 has the right sum, and none sent more than a ring must."
    return Passed(words, {"score": score})


def _check_traffic(ranks: int, shape: tuple[int, ...], told: tuple[dict[str, Any], ...]) -> None:
    """The sums were right; now what it took. told: each rank's numbers for this shape."""
    size = math.prod(shape)
    allowed, rounds = 2 * (ranks - 1) * math.ceil(size / ranks), 2 * (ranks - 1)
    for rank, case in enumerate(told):
        where = f"Rank {rank} of {ranks}, tensor of shape {shape}: the sum is right, but"
        ring = f"a ring sends {rounds}/{ranks} = {rounds / ranks:.2f} × S"
        if case["sent"] > allowed:
            raise Wrong(f"{where} you sent {case['sent'] / size:.2f} × S; {ring}.", sent=case["sent"], allowed=allowed)
        others = [target for target in case["targets"] if target != (rank + 1) % ranks]
        if others:
            to = " and ".join(map(str, others))
            raise Wrong(f"{where} it sent to rank {to}; on a ring it sends to rank {(rank + 1) % ranks} only.")
        if case["rounds"] > rounds:
            raise Wrong(f"{where} it took {case['rounds']} exchanges; a ring needs 2(n−1) = {rounds}.")


def grade(answer: Answer, shapes: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    """On each rank: the sum of every shape, and what was sent for it. The numbers are whole, so sums are exact."""
    from lab.learning.exercises.group import Exchange, connected

    cases = []
    with connected(answer.context):
        for number, shape in enumerate(shapes):
            parts = [_part(rank, number, shape) for rank in range(answer.ranks)]
            exchange = Exchange(answer.context)
            where = f"rank {answer.rank} of {answer.ranks}, tensor of shape {shape}"
            found = answer(parts[answer.rank].clone(), answer.rank, answer.ranks, exchange, where=where)
            _check_sum(found, parts, where)
            cases.append(
                {"shape": shape, "sent": exchange.sent, "rounds": exchange.rounds, "targets": sorted(exchange.targets)}
            )
    return {"cases": cases}


def _part(rank: int, number: int, shape: tuple[int, ...]) -> torch.Tensor:
    import torch

    generator = torch.Generator().manual_seed(1000 * number + rank)
    return torch.randint(1, 100, shape, generator=generator).float()


def _check_sum(found: Any, parts: list[torch.Tensor], where: str) -> None:
    import torch

    total = torch.stack(parts).sum(0)
    if not isinstance(found, torch.Tensor):
        raise Wrong(f"On {where} it must return a tensor, and returned {described(found)}.")
    if found.shape != total.shape:
        raise Wrong(f"On {where} it returned shape {tuple(found.shape)}: the sum has the shape of the tensor.")
    if (wrong := (found != total).nonzero()).numel():
        place = tuple(wrong[0].tolist())
        whose = ", ".join(f"{part[place]:g}" for part in parts)
        raise Wrong(
            f"On {where} {len(wrong)} of {total.numel()} elements are wrong: at {place} it has {float(found[place]):g},"
            f" and the ranks hold {whose}, together {float(total[place]):g}."
        )


EXERCISE = Exercise(
    name=NAME,
    line="Sum a tensor over all ranks, sending no more than a ring must",
    task=TASK,
    blank=BLANK,
    hints=HINTS,
    solution=solution,
    imports="from collections.abc import Callable\n\nimport torch",
    judge=judge,
)
