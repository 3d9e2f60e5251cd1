"""Autograd's engine, started as torch's own pipelining starts it: with a gradient that came from elsewhere.

`torch.autograd.backward` and `grad` do the same, but check the gradient's shape by torch.fx's symbolic shapes, which
bring sympy along: half a second of every start.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.autograd.graph import GradientEdge, _engine_run_backward


def add_gradients(output: GradientEdge, gradient: Tensor) -> None:
    """Adds to `.grad` of all leaves that the output was made of. gradient: of the output's shape. As
    `torch.autograd.backward` does.
    """
    _engine_run_backward((output,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def gradients(output: Tensor, inputs: Sequence[Tensor], gradient: Tensor) -> tuple[Tensor, ...]:
    """Those of the inputs, which must all have gone into the output. gradient: of the output's shape. As
    `torch.autograd.grad` does.
    """
    assert gradient.shape == output.shape, f"a gradient of shape {gradient.shape} for an output of {output.shape}"
    return _engine_run_backward(
        (output,), (gradient,), False, False, tuple(inputs), allow_unreachable=False, accumulate_grad=False
    )
