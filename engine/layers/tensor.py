"""Tensor parallelism (Shoeybi et al. 2019, section 3) and sequence parallelism (Korthikanti et al. 2022, 4.2).

A column-parallel linear splits its output features, the row-parallel linear after it splits its input features; one
collective when entering the pair and one when leaving it make the result whole. Activations are [s, b, h]: sequence
first, so that sequence parallelism scatters and gathers along dim 0 without copies.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from engine.communication.comm import Comm
from engine.layers.split_backward import LaterLinear, LaterVector, WeightWork, unshared


class TensorAxis:
    """The tensor group as a layer sees it: its size, this rank's place, and four ways to cross its border.

    scatter: sequence parallelism; between the column-row pairs each rank holds s / size of the sequence.
    work: where a layer's backward leaves the work of its weight part; None while backwards are whole.
    """

    def __init__(self, comm: Comm, scatter: bool) -> None:
        self.comm, self.scatter = comm, scatter
        self.size, self.index = comm.size("tp"), comm.index("tp")
        self.work: WeightWork | None = None

    def column_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x: [s or s/t, b, h], whole or scattered; weight: [out/t…, h]; bias: [out/t…]; returns [s, b, out/t]."""
        bias = None if bias is None else self.vector(bias).flatten()
        if self.scatter and self.work is not None:
            ways = (self.all_gather, self.reduce_scatter)
            later: Tensor = LaterLinear.apply(x, weight, bias, self.work, *ways)
            return later
        if self.scatter:
            out: Tensor = _GatherLinear.apply(x, weight.flatten(0, -2), bias, self)
            return out
        return self._linear(_Enter.apply(x, self) if self.size > 1 else x, weight, bias)

    def row_linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """x: [s, b, in/t]; weight: [out, in/t]; returns [s or s/t, b, out]. The bias is added once, after the sum."""
        return self.leave(self._linear(x, weight, None)) + self.vector(bias)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.work is None:
            return F.linear(x, weight.flatten(0, -2), bias)
        out: Tensor = LaterLinear.apply(x, weight, bias, self.work, None, None)
        return out

    def vector(self, param: Tensor) -> Tensor:
        """A bias or a norm's weight for use: as it is, or with its gradient left to the weight part."""
        return param if self.work is None else LaterVector.apply(param, self.work)

    def leave(self, partial: Tensor) -> Tensor:
        """Sums partial results [s, b, h] over the group; under sequence parallelism each rank keeps its part of s."""
        if self.size == 1:
            return partial
        out: Tensor = (_ReduceScatter if self.scatter else _Leave).apply(partial, self)
        return out

    def own_part(self, positions: Tensor) -> Tensor:
        """The rows of a [s, …] tensor that belong to this rank's part of the sequence."""
        return positions.chunk(self.size)[self.index] if self.scatter else positions

    def all_reduce(self, x: Tensor, maximum: bool = False) -> Tensor:
        """Sums x over the group in place, or takes the maximum; blocks."""
        self.comm.now(self.comm.all_reduce(x, "tp", maximum=maximum))
        return x

    def reduce_scatter(self, x: Tensor) -> Tensor:
        """Sums x [s, …] over the group; blocks. Returns this rank's part of the sum, [s/t, …]."""
        out = x.new_empty(x.shape[0] // self.size, *x.shape[1:])
        self.comm.now(self.comm.reduce_scatter(out, x.contiguous(), "tp"))
        return out

    def all_gather(self, x: Tensor) -> Tensor:
        """x: [s/t, …]; returns the parts of all ranks of the group one after the other, [s, …]; blocks."""
        out = x.new_empty(x.shape[0] * self.size, *x.shape[1:])
        self.comm.now(self.comm.all_gather(out, x.contiguous(), "tp"))
        return out


class _Enter(Function):
    """Megatron's f: identity forward, all-reduce of the gradient backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: TensorAxis) -> Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return unshared(ctx.axis.all_reduce(grads[0].contiguous())), None


class _Leave(Function):
    """Megatron's g: all-reduce forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, axis: TensorAxis) -> Tensor:
        ctx.mark_dirty(partial)
        return axis.all_reduce(partial)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _ReduceScatter(Function):
    """Leaving under sequence parallelism: reduce-scatter forward, all-gather backward."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, axis: TensorAxis) -> Tensor:
        ctx.axis = axis
        return axis.reduce_scatter(partial)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return unshared(ctx.axis.all_gather(grads[0])), None


class _GatherLinear(Function):
    """A column-parallel linear entered under sequence parallelism.

    Only the scattered input is saved; backward gathers it again for the weight gradient, one more all-gather for t
    times less activation memory (Korthikanti et al. 2022, section 4.2.2).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, axis: TensorAxis) -> Tensor:
        ctx.axis, ctx.has_bias = axis, bias is not None
        ctx.save_for_backward(x, weight)
        return F.linear(axis.all_gather(x), weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        dy = grads[0].contiguous()
        whole, rows = ctx.axis.all_gather(x).flatten(0, 1), dy.flatten(0, 1)
        dx = unshared(ctx.axis.reduce_scatter(dy @ weight))
        return dx, rows.t() @ whole, rows.sum(0) if ctx.has_bias else None, None
