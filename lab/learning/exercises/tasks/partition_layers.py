"""Exercise: partition unequal layers into pipeline stages."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

from lab.learning.exercises.exercise import Exercise, Passed, Wrong, described, wants_function
from lab.learning.exercises.sandbox import run_apart

if TYPE_CHECKING:
    from lab.learning.exercises.grader_process import Answer

NAME = "partition_layers"
CASES: tuple[tuple[tuple[float, ...], int], ...] = (
    ((1, 1, 1, 1), 2),
    ((1, 1, 1, 1, 1), 3),
    ((6, 2, 2, 2, 2, 2), 3),  # an embedding that weighs as much as three blocks
    ((1, 2, 2, 2, 2, 2, 2, 7), 4),  # a large head
    ((1, 2, 3, 4, 5, 6, 7, 8, 9), 3),
    ((2, 2, 2, 5, 1, 1, 1), 3),  # filling each stage up to the mean is not best
    ((9, 1, 1, 1, 1, 1, 1, 9), 4),
    ((3.5, 1.25, 2.0, 4.75, 1.0, 2.5, 3.0, 1.5, 2.25, 4.0), 4),
    ((5, 1, 1), 3),
    ((7, 3), 1),
)
TOLERANCE = 1e-9

TASK = """
**Partition unequal layers into pipeline stages.** `costs` holds the cost of each layer, first to last (the
embedding and the head are layers too, and unlike the others). Return a list of `stages` lists with the numbers of
the layers of each stage: `[[0, 1], [2], [3, 4]]`.

Every layer is on one stage, every stage has at least one layer, and a stage's layers follow one another: a stage
hands its output to the next one only. The slowest stage sets the pace, so its cost must be the smallest that is
possible.
"""
BLANK = """
def partition_layers(costs, stages):
    ...
    return pieces  # such as [[0, 1], [2], [3, 4]]
"""
HINTS = (
    "With a limit for the cost of a stage it is easy: fill each stage up to it. What is the smallest limit that works?",
    "The bottleneck is always the sum of some layers in a row. Or try all cuts: `itertools.combinations` gives them.",
)


def solution(costs: list[float], stages: int) -> list[list[int]]:
    from itertools import combinations, pairwise

    def pieces(cuts: tuple[int, ...]) -> list[list[int]]:
        return [list(range(a, b)) for a, b in pairwise((0, *cuts, len(costs)))]

    every = (pieces(cuts) for cuts in combinations(range(1, len(costs)), stages - 1))
    return min(every, key=lambda found: max(sum(costs[i] for i in piece) for piece in found))


def judge(answer: Any, seconds: float) -> Passed:
    wants_function(NAME, answer, "costs", "stages")
    (told,) = run_apart(answer, f"{__name__}:grade", limit=seconds, arguments={"cases": CASES})
    return Passed(f"No partition has a faster slowest stage, in {told['cases']} cases.", told)


def grade(answer: Answer, cases: tuple[tuple[tuple[float, ...], int], ...]) -> dict[str, Any]:
    for costs, stages in cases:
        where = f"costs={list(costs)} and stages={stages}"
        pieces = _lists(answer(list(costs), stages, where=where), where)
        _check_legal(pieces, len(costs), stages, where)
        _check_best(pieces, costs, stages, where)
    return {"cases": len(cases)}


def _lists(found: Any, where: str) -> list[list[int]]:
    """What was returned as lists of layer numbers. Raises `Wrong` for anything else."""
    shape = "a list of lists of layer numbers, such as [[0, 1], [2]]"
    if not isinstance(found, (list, tuple)):
        raise Wrong(f"With {where}, it must return {shape}, and returned {described(found)}.")
    for stage, piece in enumerate(found):
        if not isinstance(piece, (list, tuple, range)):
            raise Wrong(f"With {where}, it must return {shape}, and stage {stage} is {described(piece)}.")
        for layer in piece:
            if not isinstance(layer, int) or isinstance(layer, bool):
                raise Wrong(f"With {where}, stage {stage} holds {described(layer)}: layers are numbers from 0.")
    return [list(piece) for piece in found]


def _check_legal(pieces: list[list[int]], layers: int, stages: int, where: str) -> None:
    if len(pieces) != stages:
        raise Wrong(f"With {where}, it returned {len(pieces)} stages: {pieces}.")
    home: dict[int, int] = {}
    for stage, piece in enumerate(pieces):
        if not piece:
            raise Wrong(f"With {where}, stage {stage} of {pieces} has no layer: that rank would only pass messages on.")
        for layer in piece:
            if not 0 <= layer < layers:
                raise Wrong(f"With {where}, stage {stage} holds layer {layer}: the layers are 0 to {layers - 1}.")
            if layer in home:
                raise Wrong(f"With {where}, layer {layer} is on stage {home[layer]} and on stage {stage}.")
            home[layer] = stage
    if missing := [layer for layer in range(layers) if layer not in home]:
        raise Wrong(f"With {where}, layer {missing[0]} is on no stage of {pieces}.")
    for before, after in pairwise(range(layers)):
        if home[after] not in (home[before], home[before] + 1):
            raise Wrong(
                f"With {where}, {pieces} is not contiguous: layer {before} is on stage {home[before]} and layer {after}"
                f" on stage {home[after]}, which is not the next one."
            )
    for stage, piece in enumerate(pieces):
        if piece != sorted(piece):
            raise Wrong(f"With {where}, stage {stage} runs its layers in the order {piece}: they run first to last.")


def _check_best(pieces: list[list[int]], costs: tuple[float, ...], stages: int, where: str) -> None:
    loads = [sum(costs[layer] for layer in piece) for piece in pieces]
    best = smallest_bottleneck(costs, stages)
    if max(loads) > best + TOLERANCE:
        slow = loads.index(max(loads))
        raise Wrong(
            f"With {where}, {pieces} has stages that cost {', '.join(f'{load:g}' for load in loads)}: stage {slow} sets"
            f" the pace with {loads[slow]:g}, and {best:g} is possible.",
            bottleneck=max(loads),
            possible=best,
        )


def smallest_bottleneck(costs: tuple[float, ...], stages: int) -> float:
    """The least cost that the costliest stage can have, over all cuts."""
    every = combinations(range(1, len(costs)), stages - 1)
    return min(max(sum(costs[i:j]) for i, j in pairwise((0, *cuts, len(costs)))) for cuts in every)


EXERCISE = Exercise(
    name=NAME,
    line="Partition unequal layers so that the slowest stage is as fast as can be",
    task=TASK,
    blank=BLANK,
    hints=HINTS,
    solution=solution,
    judge=judge,
)
