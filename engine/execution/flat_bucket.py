"""The storage of a bucket: parameters, gradients and optimizer state in flat buffers, sharded as its ZeRO stage says.

| ZeRO | parameters | gradients | optimizer state |
|------|------------|-----------|-----------------|
| 0    | whole      | whole     | whole           |
| 1    | whole      | whole     | slice           |
| 2    | whole      | slice     | slice           |
| 3    | slice      | slice     | slice           |

(Rajbhandari et al. 2020, ZeRO, section 5.) Layers see ordinary tensors: views into the whole buffers. A whole buffer
that is not there keeps its views and gives up only its memory, as in torch's FSDP.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from engine.execution.optimizer import Adam, squared_norm
from engine.job.axes import dividing
from engine.job.job import Job
from engine.job.mesh import Coordinate
from engine.layers.split_backward import MAIN_GRAD
from engine.model.buckets import Bucket
from engine.model.initialization import Source, local_slice
from engine.recording.ledger import Ledger


class FlatBucket:
    """One bucket on one rank.

    params: the parameters as layers use them, by full name; their gradients arrive in views of the gradient buffer.
    whole, whole_grad: the flat buffers [bucket.padded]. shard: the slice of parameters this rank updates; grad: its
    reduced gradient; master: the fp32 values that Adam updates, `shard` itself unless that has 16 bits; all
    [bucket.shard].
    """

    def __init__(
        self, job: Job, bucket: Bucket, at: Coordinate, device: torch.device, ledger: Ledger, source: Source
    ) -> None:
        """Starts from the values of `source` and holds at once no more than the ZeRO stage does."""
        self.job, self.bucket, self.ledger, self.zero, self.at = job, bucket, ledger, job.effective_zero, at
        self.degrees, which = job.plan.degrees, at[bucket.shard_axis] if bucket.shard_axis else 0
        self.own = slice(which * bucket.shard, (which + 1) * bucket.shard)
        self.bytes = job.precision
        self.whole = torch.zeros(bucket.padded, device=device, dtype=DTYPES[self.bytes.compute])
        self.whole_grad = torch.zeros(bucket.padded, device=device, dtype=DTYPES[self.bytes.grad])
        self.params = self._views()
        self.shard, self.grad = self.whole[self.own], self.whole_grad[self.own]
        self._fill(source)
        self.master = self.shard.float()
        self.m, self.v = torch.zeros_like(self.master), torch.zeros_like(self.master)

    @property
    def replicated_from(self) -> int:
        """Where in the buffer the parameters begin that every tensor rank holds whole."""
        return self.bucket.size - self.bucket.replicated

    def _views(self) -> dict[str, Tensor]:
        views, start = {}, 0
        for param in self.bucket.params(self.job):
            shape, size = param.local_shape(self.degrees), param.local_size(self.degrees)
            # .data gives a leaf with a version of its own: gathering the same values again is no change to autograd
            view = self.whole[start : start + size].view(shape).data.requires_grad_()
            grad = self.whole_grad[start : start + size].view(shape)
            if grad.dtype == view.dtype:
                view.grad = grad
            else:
                setattr(view, MAIN_GRAD, grad)  # for the weight part of a split backward, which adds there itself
                view.register_post_accumulate_grad_hook(partial(_add_to_main, grad))
            views[param.name], start = view, start + size
        return views

    def _fill(self, source: Source) -> None:
        """Sets the initial values, then gives up what this ZeRO stage does not hold; books the state."""
        self._copy_from(source, self.whole)
        if self.zero >= 2:
            self.grad = self.whole_grad[self.own].clone()
            _free(self.whole_grad)
        if self.zero == 3:
            self.shard = self.whole[self.own].clone()
            _free(self.whole)
        whole, shard = self.bucket.padded, self.bucket.shard
        self.ledger.add("params", (shard if self.zero == 3 else whole) * self.bytes.compute)
        self.ledger.add("grads", (shard if self.zero >= 2 else whole) * self.bytes.grad)
        self.ledger.add("optimizer", shard * self.bytes.optimizer)

    def _copy_from(self, source: Source, flat: Tensor) -> None:
        start = 0
        for param in self.bucket.params(self.job):
            mine = local_slice(param, source(param), self.degrees, self.at)
            size = mine.numel()
            flat[start : start + size] = mine.flatten().to(flat.device)
            start += size

    # -- parameters, ZeRO-3

    def materialize(self) -> Tensor:
        """Memory for the whole parameters, to gather into."""
        _restore(self.whole)
        self.ledger.add("gathered", self.bucket.padded * self.bytes.compute)
        return self.whole

    def release(self) -> None:
        """Gives up the whole parameters' memory again, once nothing uses them."""
        _free(self.whole)
        self.ledger.add("gathered", -self.bucket.padded * self.bytes.compute)

    # -- gradients

    def open_gradients(self) -> None:
        """Called before a backward that adds to this bucket: ZeRO-2 and 3 bring a zeroed whole buffer."""
        if self.zero >= 2 and self.whole_grad.untyped_storage().nbytes() == 0:
            _restore(self.whole_grad)
            self.whole_grad.zero_()
            self.ledger.add("buffers", self.bucket.padded * self.bytes.grad)

    @property
    def replicated_grad(self) -> Tensor:
        """The gradients of the parameters that every tensor rank holds whole."""
        return self.whole_grad[self.replicated_from : self.bucket.size]

    def reduction_target(self) -> Tensor:
        """Where a reduce-scatter puts this rank's slice: in place (ZeRO-1), or aside, to be added (ZeRO-2 and 3)."""
        if self.zero == 1:
            return self.grad
        self.ledger.add("buffers", self.bucket.shard * self.bytes.grad)
        return torch.empty_like(self.grad)

    def accumulate(self, reduced: Tensor) -> None:
        """Ends a ZeRO-2/3 reduction: adds the slice and frees the whole gradients."""
        self.grad += reduced
        _free(self.whole_grad)
        self.ledger.add("buffers", -(self.bucket.shard + self.bucket.padded) * self.bytes.grad)

    # -- step

    def squared_norm(self) -> Tensor:
        """This rank's part of the squared gradient norm, a double; every parameter counts on exactly one rank.

        Ranks whose part counts nothing compute it all the same: they would only wait, and every rank of a stage costs
        the same.
        """
        border = max(self.replicated_from - self.own.start, 0)
        split, replicated = squared_norm(self.grad[:border]), squared_norm(self.grad[border:])
        counted = split + replicated * float(self.at.is_first(dividing("tensors")))
        alike = [axis for axis in self.bucket.reduce_axes if axis != self.bucket.shard_axis]
        return counted * float(self.at.is_first(alike))

    def step(self, adam: Adam, factor: float | None, t: int) -> None:
        """Scales the gradients by `factor` (None: no clipping), updates this rank's slice and zeroes the gradients."""
        if factor is not None:
            self.grad *= factor
        adam.step(self.master, self.grad.float(), self.m, self.v, t)
        if self.master is not self.shard:
            self.shard.copy_(self.master)
        self.zero_gradients()

    def zero_gradients(self) -> None:
        (self.grad if self.zero >= 2 else self.whole_grad).zero_()

    def off_by(self, source: Source) -> Tensor:
        """The parameters this rank would compute with next, minus the values of `source`; flat, as `held`."""
        return self.held() - self.laid_out(source, torch.float32)

    def laid_out(self, source: Source, dtype: torch.dtype) -> Tensor:
        """Full tensors of `source` where `held` has their parameters; zero in the padding."""
        flat = torch.zeros(self.bucket.padded, device=self.shard.device, dtype=dtype)
        self._copy_from(source, flat)
        return flat[self.own] if self.zero == 3 else flat

    def held_parts(self) -> Iterator[tuple[str, slice]]:
        """Where in `held` each parameter of this bucket lies, by its name; those of which there is something."""
        start, (first, end) = 0, (self.own.start, self.own.stop) if self.zero == 3 else (0, self.bucket.size)
        for param in self.bucket.params(self.job):
            low, start = start, start + param.local_size(self.degrees)
            if low < end and start > first:
                yield param.name, slice(max(low, first) - first, min(start, end) - first)

    def held(self) -> Tensor:
        """The parameters that this rank holds between steps: whole, or its slice."""
        return self.shard if self.zero == 3 else self.whole


DTYPES = {2: torch.bfloat16, 4: torch.float32}
"""By bytes of an element."""


def _add_to_main(main: Tensor, param: Tensor) -> None:
    """Adds a parameter's 16-bit gradient to `main`, its place in the fp32 buffer: Megatron-LM's main gradients."""
    if param.grad is not None:  # there is none where it was left to the weight part of a split backward
        main.add_(param.grad)
        param.grad = None


def _free(flat: Tensor) -> None:
    flat.untyped_storage().resize_(0)


def _restore(flat: Tensor) -> None:
    flat.untyped_storage().resize_(flat.numel() * flat.element_size())
