"""Exercise: one rank's part of a column-parallel linear layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lab.learning.exercises.exercise import Exercise, Passed, Wrong, described, wants_function
from lab.learning.exercises.sandbox import run_apart

if TYPE_CHECKING:
    import torch

    from lab.learning.exercises.grader_process import Answer

NAME = "column_parallel_linear"
CASES = (((4, 6), 12, 2), ((4, 6), 12, 3), ((2, 3, 8), 8, 4), ((5, 4), 6, 1))
"""(shape of x, columns of the whole output, ranks), which the statement does not tell."""

TASK = """
**Compute one rank's part of a column-parallel linear layer** (Shoeybi et al. 2019, Megatron-LM, section 3).

`x` has shape (…, in) and every rank has all of it. `weight` (out, in) and `bias` (out) are those of the whole
layer, stored as in `torch.nn.Linear`; n = `world_size` divides out. Return this rank's out/n columns of `x @
weight.T + bias`, of shape (…, out/n): set side by side in rank order, the parts are the whole output. No rank
computes more than its part.
"""
BLANK = """
def column_parallel_linear(x, weight, bias, rank, world_size):
    ...
    return part  # of shape (…, out / world_size)
"""
HINTS = (
    "A column of the output needs all of x, but only one row of `weight` as torch stores it, and one number of `bias`.",
    "Which rows does this rank need? They lie side by side, out/n of them, and begin at rank · out/n.",
)


def solution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    part = weight.shape[0] // world_size
    mine = slice(rank * part, (rank + 1) * part)
    return x @ weight[mine].T + bias[mine]


def judge(answer: Any, seconds: float) -> Passed:
    wants_function(NAME, answer, "x", "weight", "bias", "rank", "world_size")
    (told,) = run_apart(answer, f"{__name__}:grade", limit=seconds, arguments={"cases": CASES})
    return Passed(f"Every rank's part is right, for {told['cases']} shapes on 1 to 4 ranks.", told)


def grade(answer: Answer, cases: tuple[tuple[tuple[int, ...], int, int], ...]) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    for shape, out, ranks in cases:
        x, weight, bias = torch.randn(shape), torch.randn(out, shape[-1]), torch.randn(out)
        whole = torch.nn.functional.linear(x, weight, bias)
        for rank in range(ranks):
            where = f"rank {rank} of {ranks}, x of shape {shape} and weight of shape {tuple(weight.shape)}"
            found = answer(x.clone(), weight.clone(), bias.clone(), rank, ranks, where=where)
            _check_shape(found, (*shape[:-1], out // ranks), where)
            _check_values(found, whole, x, weight, bias, rank, where)
    return {"cases": len(cases)}


def _check_shape(found: Any, wanted: tuple[int, ...], where: str) -> None:
    import torch

    if not isinstance(found, torch.Tensor):
        raise Wrong(f"On {where}, it must return a tensor, and returned {described(found)}.")
    if found.shape != wanted:
        raise Wrong(
            f"On {where}, it returned shape {tuple(found.shape)}: its part of the output has {wanted[-1]} columns,"
            f" so the shape is {wanted}."
        )


def _check_values(
    found: torch.Tensor,
    whole: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    rank: int,
    where: str,
) -> None:
    """Compares with torch's layer; a fault that explains the difference is named."""
    import torch

    part = found.shape[-1]
    parts = whole.split(part, dim=-1)
    if torch.allclose(found, parts[rank], rtol=1e-4, atol=1e-4):
        return
    if torch.allclose(found, (x @ weight.T).split(part, dim=-1)[rank], rtol=1e-4, atol=1e-4):
        raise Wrong(f"On {where}, the product is right and the bias is missing.")
    for other, theirs in enumerate(parts):
        if torch.allclose(found, theirs, rtol=1e-4, atol=1e-4):
            raise Wrong(f"On {where}, it returned the columns of rank {other}.")
    columns = [_column_of(found[..., i], whole) for i in range(part)]
    if None not in columns:
        wanted = f"{rank * part} to {(rank + 1) * part - 1}"
        raise Wrong(f"On {where}, it returned columns {columns} of the whole output; its part is columns {wanted}.")
    difference = (found - parts[rank]).abs()
    place = tuple(int(i) for i in torch.unravel_index(difference.argmax(), difference.shape))
    values = f"{float(found[place]):.4g}, and torch's layer gives {float(parts[rank][place]):.4g}"
    raise Wrong(f"On {where}, the values are wrong: at {place} of the part it has {values}.")


def _column_of(column: torch.Tensor, whole: torch.Tensor) -> int | None:
    """Which column of the whole output this is."""
    import torch

    every = range(whole.shape[-1])
    return next((j for j in every if torch.allclose(column, whole[..., j], rtol=1e-4, atol=1e-4)), None)


EXERCISE = Exercise(
    name=NAME,
    line="Compute one rank's columns of a linear layer",
    task=TASK,
    blank=BLANK,
    hints=HINTS,
    solution=solution,
    imports="import torch",
    judge=judge,
)
