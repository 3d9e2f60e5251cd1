"""Exercise: the backward of a column-parallel linear layer, on real processes: what must be summed, and what not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lab.learning.exercises.exercise import Exercise, Passed, Wrong, described, wants_function
from lab.learning.exercises.sandbox import run_apart

if TYPE_CHECKING:
    import torch

    from lab.learning.exercises.grader_process import Answer

NAME = "column_parallel_backward"
RANKS = (2, 3)
CASES = (((4, 6), 12), ((2, 3, 5), 6))  # (shape of x, columns of the whole output)
GRADIENTS = ("grad_x", "grad_weight", "grad_bias")

TASK = """
**Compute the gradients of a column-parallel linear layer on one rank.** It is run on 2 and 3 real processes.

The rank holds its rows of the weight, `weight` (out/n, in), and got `grad` (…, out/n), the gradient of its part of
the output. `x` (…, in) is the same on every rank. Return `(grad_x, grad_weight, grad_bias)`: the gradient of the
input, which must be complete and the same on every rank, and those of this rank's own weight (out/n, in) and bias
(out/n).

`all_reduce(tensor)` returns the sum of `tensor` over all ranks. Use it once, and only where it is needed.
"""
BLANK = """
def column_parallel_backward(grad, x, weight, all_reduce):
    ...
    return grad_x, grad_weight, grad_bias
"""
HINTS = (
    "On one rank, with y = x @ weight.T + bias: grad_x = grad @ weight, and grad_weight = grad.T @ x for a flat batch.",
    "Every rank's columns depend on all of x. So the gradient of x has a contribution from every rank.",
)


def solution(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, all_reduce: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grad_x = all_reduce(grad @ weight)  # every rank's columns depend on all of x
    flat = grad.flatten(0, -2)
    return grad_x, flat.T @ x.flatten(0, -2), flat.sum(0)


def judge(answer: Any, seconds: float) -> Passed:
    wants_function(NAME, answer, "grad", "x", "weight", "all_reduce")
    for ranks in RANKS:
        run_apart(answer, f"{__name__}:grade", limit=seconds, ranks=ranks, arguments={"cases": CASES})
    words = "All gradients equal torch's on 2 and 3 processes, with one all-reduce: the input's gradient, nothing else."
    return Passed(words, {"ranks": RANKS})


def grade(answer: Answer, cases: tuple[tuple[tuple[int, ...], int], ...]) -> dict[str, Any]:
    """On each rank, beside torch's autograd of the whole layer."""
    import torch

    from lab.learning.exercises.group import AllReduce, connected

    torch.manual_seed(0)
    with connected(answer.context):
        for shape, out in cases:
            x, weight = torch.randn(shape, requires_grad=True), torch.randn(out, shape[-1], requires_grad=True)
            bias = torch.randn(out, requires_grad=True)
            grad = torch.randn(*shape[:-1], out)
            torch.nn.functional.linear(x, weight, bias).backward(grad)
            assert x.grad is not None and weight.grad is not None and bias.grad is not None
            mine = slice(answer.rank * out // answer.ranks, (answer.rank + 1) * out // answer.ranks)
            given = grad[..., mine].clone(), x.detach().clone(), weight[mine].detach().clone()
            partial, sums = given[0] @ given[2], AllReduce(answer.context)
            where = (
                f"rank {answer.rank} of {answer.ranks}, x of shape {shape} and weight of shape {tuple(given[2].shape)}"
            )
            found = answer(*given, sums, where=where)
            _check(found, (x.grad, weight.grad[mine], bias.grad[mine]), partial, where)
            _check_calls(sums.shapes, where)
    return {}


def _check(found: Any, wanted: tuple[torch.Tensor, ...], partial: torch.Tensor, where: str) -> None:
    import torch

    if not isinstance(found, tuple) or len(found) != 3:
        got = f"{len(found)} values" if isinstance(found, tuple) else described(found)
        raise Wrong(f"On {where}, it must return (grad_x, grad_weight, grad_bias), and returned {got}.")
    for name, value, right in zip(GRADIENTS, found, wanted, strict=True):
        if not isinstance(value, torch.Tensor):
            raise Wrong(f"On {where}, {name} must be a tensor, and is {described(value)}.")
        if value.shape != right.shape:
            raise Wrong(f"On {where}, {name} has shape {tuple(value.shape)}, and must have {tuple(right.shape)}.")
        if torch.allclose(value, right, rtol=1e-4, atol=1e-4):
            continue
        if name == "grad_x" and torch.allclose(value, partial, rtol=1e-4, atol=1e-4):
            raise Wrong(f"On {where}, grad_x is what this rank's columns contribute; the other ranks' is missing.")
        difference = (value - right).abs()
        place = tuple(int(i) for i in torch.unravel_index(difference.argmax(), difference.shape))
        values = f"{float(value[place]):.4g}, and torch's autograd gives {float(right[place]):.4g}"
        raise Wrong(f"On {where}, {name} is wrong: at {place} it has {values}.")


def _check_calls(shapes: list[tuple[int, ...]], where: str) -> None:
    if len(shapes) > 1:
        every = ", ".join(map(str, shapes))
        raise Wrong(
            f"On {where}, the gradients are right, but all_reduce was called {len(shapes)} times, for shapes {every}:"
            " one call is enough."
        )


EXERCISE = Exercise(
    name=NAME,
    line="Compute its gradients, and find what must be summed over the ranks",
    task=TASK,
    blank=BLANK,
    hints=HINTS,
    solution=solution,
    imports="from collections.abc import Callable\n\nimport torch",
    judge=judge,
)
