"""Activation recomputation inside a layer: keep the inputs of a function, not what it saves (Chen et al. 2016)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from engine.layers.run_backward import gradients


def recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """function(*inputs), which is run again in backward. It must be deterministic and use no parameters."""
    out: Tensor = _Recomputed.apply(function, *inputs)
    return out


class _Recomputed(Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad():
            out = ctx.function(*inputs)
        return (None, *gradients(out, inputs, grads[0]))
