"""Faults of the bug zoo (`engine.job.bugs`) that are a wrong act of a rank: each takes the place of something that the
runtime does, before the first step. Nothing of them is in the way of a rank without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.communication.comm import Handle, stamp_end
from engine.execution.flat_bucket import FlatBucket
from engine.execution.optimizer import clip_factor, squared_norm
from engine.execution.runtime import Runtime
from engine.execution.step_state import StepState
from engine.job.errors import JobRefused
from engine.layers.tensor import TensorAxis
from engine.model.unit_kinds import kind_of
from engine.program.kinds import Kind
from engine.program.program import Action

Do = Callable[[Runtime, Action, StepState], Handle | None]


def _instead(owner: object, name: str, around: Callable[[Any], Any]) -> None:
    """Puts what `around` makes of a method in its place, on this one object."""
    setattr(owner, name, around(getattr(owner, name)))


def _around(runtime: Runtime, which: Callable[[Kind], bool], around: Callable[[Do], Do]) -> None:
    """Puts what `around` makes of them in the place of the handlers of some kinds of action."""
    for kind in filter(which, runtime.do):
        runtime.do[kind] = around(runtime.do[kind])


# -- the data and the loss


def same_data(runtime: Runtime) -> None:
    runtime.replica = 0


def loss_times_m(runtime: Runtime) -> None:
    m = runtime.job.plan.microbatches

    def around(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda unit, *rest: forward(unit, *rest) * m if kind_of(unit).loss else forward(unit, *rest)

    _instead(runtime.model, "forward", around)


# -- inside the layers


class _NoInputSum(TensorAxis):
    def column_linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return self._linear(x, weight, None if bias is None else self.vector(bias).flatten())


class _BiasBeforeSum(TensorAxis):
    def row_linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return self.leave(self._linear(x, weight, None) + self.vector(bias))


def input_gradient_not_summed(runtime: Runtime) -> None:
    runtime.model.axis = _NoInputSum(runtime.comm, runtime.model.axis.scatter)


def row_bias_t_times(runtime: Runtime) -> None:
    runtime.model.axis = _BiasBeforeSum(runtime.comm, runtime.model.axis.scatter)


# -- messages


def wrong_tag(runtime: Runtime) -> None:
    """The activations of micro-batches 2i and 2i + 1 change places. Raises `JobRefused` where there are no tags."""
    if runtime.comm.backend != "gloo":
        raise JobRefused("bug=wrong-tag needs tags, which NCCL does not have: use the CPU (CUDA_VISIBLE_DEVICES='').")
    last = runtime.job.plan.microbatches - 1

    def around(tag: Callable[[Kind, int, int], int]) -> Callable[[Kind, int, int], int]:
        return lambda kind, sender, k: tag(kind, sender, min(k ^ 1, last) if kind is Kind.RECV_ACT else k)

    _instead(runtime, "tag", around)


# -- gradients and parameters


def divided_twice(runtime: Runtime) -> None:
    dp = runtime.job.plan.replicas

    def around(do: Do) -> Do:
        def divide_first(rank: Runtime, a: Action, state: StepState) -> Handle | None:
            for bucket in rank.buckets.values():
                bucket.grad /= dp
            return do(rank, a, state)

        return divide_first

    _around(runtime, lambda kind: kind.sums_norm, around)


def reduced_every_microbatch(runtime: Runtime) -> None:
    """What is summed already is kept aside, for the next sum must not count it again."""
    kept = {name: torch.zeros_like(bucket.grad) for name, bucket in runtime.buckets.items()}
    last = {(a.unit, a.axis): a for a in runtime.lane if a.kind is Kind.REDUCE}

    def around(do: Do) -> Do:
        def reduce(rank: Runtime, a: Action, state: StepState) -> Handle | None:
            handle = do(rank, a, state)
            bucket = rank.buckets[a.unit]
            if handle is not None and a.axis == (bucket.bucket.shard_axis or bucket.bucket.sum_axes[-1]):
                final = a == last[a.unit, a.axis]
                handle.after.append(lambda: _put_aside(bucket, kept[a.unit], final))
            return handle

        return reduce

    _around(runtime, lambda kind: kind is Kind.REDUCE, around)


def _put_aside(bucket: FlatBucket, kept: Tensor, final: bool) -> None:
    if final:
        bucket.grad += kept
        kept.zero_()
    else:
        kept += bucket.grad
        bucket.whole_grad.zero_()


def stale_gather(runtime: Runtime) -> None:
    """In steps 1, 3, 5… what is gathered are the shards of the step before."""
    kept: dict[str, Tensor] = {}

    def around(do: Do) -> Do:
        def gather(rank: Runtime, a: Action, state: StepState) -> Handle | None:
            bucket = rank.buckets[a.unit]
            if state.number % 2 == 0:
                kept[a.unit] = bucket.shard.clone()
            return stamp_end(rank.comm.all_gather(bucket.materialize(), kept[a.unit], a.axis, a))

        return gather

    _around(runtime, lambda kind: kind is Kind.GATHER, around)


# -- the optimizer


def clip_by_own_norm(runtime: Runtime) -> None:
    clip = runtime.job.training.clip

    def around(do: Do) -> Do:
        def norm(rank: Runtime, a: Action, state: StepState) -> Handle | None:
            handle = do(rank, a, state)
            own = torch.stack([squared_norm(bucket.grad) for bucket in rank.buckets.values()]).sum().sqrt()
            state.factor = clip_factor(float(own), clip)
            return handle

        return norm

    _around(runtime, lambda kind: kind.sums_norm, around)


def gradients_not_zeroed(runtime: Runtime) -> None:
    for bucket in runtime.buckets.values():
        _instead(bucket, "zero_gradients", lambda zero: lambda: None)


def adam_counts_microbatches(runtime: Runtime) -> None:
    m = runtime.job.plan.microbatches
    for bucket in runtime.buckets.values():
        _instead(bucket, "step", lambda step: lambda adam, factor, t: step(adam, factor, m * t))
