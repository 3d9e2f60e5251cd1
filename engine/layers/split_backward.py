"""A backward in two parts: the input part now, what it leaves for the weight part later (Qi et al. 2023, section 2).

The input part runs autograd as far as the gradient of the unit's input. A linear leaves its input and the gradient of
its output there, from which the weight part makes the weight's gradient: the larger part of a backward's work that
nobody waits for. Gradients of biases and norms cost little and are made in the input part, as the authors do; but
they too are added by the weight part, so that a micro-batch's gradients reach the buffers all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from engine.recording.ledger import storage_identity

MAIN_GRAD = "main_grad"
"""Attribute of a parameter whose gradient is summed in a wider type than its own: that buffer. Megatron-LM's name."""

Gather = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LinearWork:
    """What a linear leaves: its input, scattered along dim 0 if it is to be gathered again, and its output's gradient.

    weight: [out…, in], its leading dims flattened for the product. x: [s or s/t, b, in]; dy: [s, b, out].
    """

    weight: Tensor
    x: Tensor
    dy: Tensor
    gather: Gather | None

    def add(self) -> None:
        """Makes the weight's gradient and adds it."""
        whole = self.x if self.gather is None else self.gather(self.x)
        _buffer(self.weight).add_((self.dy.flatten(0, 1).t() @ whole.flatten(0, 1)).view_as(self.weight))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What it holds until then; the weight is there anyway."""
        return self.x, self.dy


@dataclass(frozen=True)
class VectorWork:
    """The gradient of a bias or of a norm's weight, made and not yet added."""

    param: Tensor
    gradient: Tensor

    def add(self) -> None:
        """Adds the gradient."""
        _buffer(self.param).add_(self.gradient)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.gradient,)


def _buffer(param: Tensor) -> Tensor:
    """Where a parameter's gradient is summed: its `.grad`, or a wider one beside it (see
    `engine.execution.flat_bucket`).
    """
    buffer: Tensor | None = getattr(param, MAIN_GRAD, param.grad)
    assert buffer is not None
    return buffer


WeightWork = list[LinearWork | VectorWork]


def held_bytes(work: WeightWork) -> int:
    """Bytes that wait for the weight part, each storage once."""
    storages = {storage_identity(t): t.untyped_storage().nbytes() for part in work for t in part.tensors}
    return sum(storages.values())


def add_all(work: WeightWork) -> None:
    """The weight part."""
    with torch.no_grad():
        for part in work:
            part.add()


def unshared(gradient: Tensor) -> Tensor:
    """The result of a collective as a tensor object of its own, to be returned from a backward.

    The backend's thread may hold the original a moment longer. Autograd keeps a leaf's gradient as it is only if nobody
    else holds it, and else copies it: the operators of a backward would be a matter of chance.
    """
    return gradient.view_as(gradient)


class LaterVector(Function):
    """A parameter as it is; its gradient goes to `work` instead of being added."""

    @staticmethod
    def forward(ctx: Any, param: Tensor, work: WeightWork) -> Tensor:
        """param: of any shape, which is that of the result. work: where backward leaves its gradient."""
        ctx.param, ctx.work = param, work
        return param.view_as(param)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None]:
        """Leaves the gradient to `work`; autograd is given none."""
        ctx.work.append(VectorWork(ctx.param, grads[0]))
        return None, None


class LaterLinear(Function):
    """A linear whose backward makes the gradients of its input and bias, and leaves that of its weight to `work`.

    gather, scatter: under sequence parallelism, how the input becomes whole and its gradient scattered again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        work: WeightWork,
        gather: Gather | None,
        scatter: Gather | None,
    ) -> Tensor:
        """x: [s or s/t, b, in]; weight: [out…, in]; bias: [out] or None; returns [s, b, out]."""
        ctx.weight, ctx.work, ctx.gather, ctx.scatter = weight, work, gather, scatter  # the very leaf, which has .grad
        ctx.has_bias = bias is not None
        ctx.save_for_backward(x)
        return F.linear(x if gather is None else gather(x), weight.flatten(0, -2), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """grads: that of the output, [s, b, out]. Returns those of x and bias, and None for all else."""
        (x,) = ctx.saved_tensors
        dy = grads[0].contiguous()
        rows = dy.flatten(0, 1)
        dx = (rows @ ctx.weight.flatten(0, -2)).view(*dy.shape[:-1], -1)
        # detached: a graph that outlives its backward would hold everything that it saved
        ctx.work.append(LinearWork(ctx.weight, x.detach(), dy, ctx.gather))
        db = rows.sum(0) if ctx.has_bias else None
        return dx if ctx.scatter is None else unshared(ctx.scatter(dx)), None, db, None, None, None
