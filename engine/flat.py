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

import torch
from torch import Tensor

from engine.buckets import FP32, Bucket
from engine.initial import Source, local_slice
from engine.job import Job
from engine.memory import Ledger
from engine.mesh import Coordinate
from engine.optimizer import Adam, squared_norm


class FlatBucket:
    """One bucket on one rank.

    params: the parameters as layers use them, by full name, with `.grad` set to a view of the gradient buffer.
    whole, whole_grad: the flat buffers [bucket.padded]. shard: the slice of parameters this rank updates; grad: its
    reduced gradient; both [bucket.shard].
    """

    def __init__(
        self, job: Job, bucket: Bucket, at: Coordinate, device: torch.device, ledger: Ledger, source: Source
    ) -> None:
        """Starts from the values of `source` and holds at once no more than the ZeRO stage does."""
        self.job, self.bucket, self.ledger, self.zero, self.at = job, bucket, ledger, job.effective_zero, at
        self.own = slice(at.dp * bucket.shard, (at.dp + 1) * bucket.shard) if self.zero else slice(0, bucket.padded)
        self.whole = torch.zeros(bucket.padded, device=device)
        self.whole_grad = torch.zeros(bucket.padded, device=device)
        self.params = self._views()
        self.shard, self.grad = self.whole[self.own], self.whole_grad[self.own]
        self._fill(source)
        self.m, self.v = torch.zeros_like(self.shard), torch.zeros_like(self.shard)

    @property
    def replicated_from(self) -> int:
        """Where in the buffer the parameters begin that every tensor rank holds whole."""
        return sum(p.local_size(self.job.plan.tp) for p in self.bucket.params(self.job) if p.split is not None)

    def _views(self) -> dict[str, Tensor]:
        views, start = {}, 0
        for param in self.bucket.params(self.job):
            shape, size = param.local_shape(self.job.plan.tp), param.local_size(self.job.plan.tp)
            # .data gives a leaf with a version of its own: gathering the same values again is no change to autograd
            view = self.whole[start : start + size].view(shape).data.requires_grad_()
            view.grad = self.whole_grad[start : start + size].view(shape)
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
        whole, shard = self.bucket.padded * FP32, self.bucket.shard * FP32
        self.ledger.add("params", shard if self.zero == 3 else whole)
        self.ledger.add("grads", shard if self.zero >= 2 else whole)
        self.ledger.add("optimizer", 2 * shard)

    def _copy_from(self, source: Source, flat: Tensor) -> None:
        start, tp = 0, self.job.plan.tp
        for param in self.bucket.params(self.job):
            size = param.local_size(tp)
            flat[start : start + size] = local_slice(param, source(param), tp, self.at.tp).flatten().to(flat.device)
            start += size

    # -- parameters, ZeRO-3

    def materialize(self) -> Tensor:
        """Memory for the whole parameters, to gather into."""
        _restore(self.whole)
        self.ledger.add("gathered", self.bucket.padded * FP32)
        return self.whole

    def release(self) -> None:
        _free(self.whole)
        self.ledger.add("gathered", -self.bucket.padded * FP32)

    # -- gradients

    def open_gradients(self) -> None:
        """Called before a backward that adds to this bucket: ZeRO-2 and 3 bring a zeroed whole buffer."""
        if self.zero >= 2 and self.whole_grad.untyped_storage().nbytes() == 0:
            _restore(self.whole_grad)
            self.whole_grad.zero_()
            self.ledger.add("buffers", self.bucket.padded * FP32)

    @property
    def replicated_grad(self) -> Tensor:
        """The gradients of the parameters that every tensor rank holds whole."""
        return self.whole_grad[self.replicated_from : self.bucket.size]

    def reduction_target(self) -> Tensor:
        """Where a reduce-scatter puts this rank's slice: in place (ZeRO-1), or aside, to be added (ZeRO-2 and 3)."""
        if self.zero == 1:
            return self.grad
        self.ledger.add("buffers", self.bucket.shard * FP32)
        return torch.empty_like(self.grad)

    def accumulate(self, reduced: Tensor) -> None:
        """Ends a ZeRO-2/3 reduction: adds the slice and frees the whole gradients."""
        self.grad += reduced
        _free(self.whole_grad)
        self.ledger.add("buffers", -(self.bucket.shard + self.bucket.padded) * FP32)

    # -- step

    def norm_parts(self) -> float:
        """This rank's part of the squared gradient norm; every parameter of the model counts on exactly one rank."""
        if not self.zero and self.at.dp:
            return 0.0
        border = self.replicated_from - self.own.start
        split = self.grad[: max(border, 0)]
        return squared_norm(split) if self.at.tp else squared_norm(self.grad)

    def step(self, adam: Adam, factor: float, t: int) -> None:
        """Clips, updates this rank's slice and zeroes the gradients."""
        if factor < 1.0:
            self.grad *= factor
        adam.step(self.shard, self.grad, self.m, self.v, t)
        (self.grad if self.zero >= 2 else self.whole_grad).zero_()

    def largest_difference(self, source: Source) -> float:
        """Largest |Δ| between the parameters this rank would compute with next and the values of `source`."""
        expected = torch.zeros(self.bucket.padded, device=self.shard.device)
        self._copy_from(source, expected)
        mine, wanted = (self.shard, expected[self.own]) if self.zero == 3 else (self.whole, expected)
        return float((wanted - mine).abs().max())


def _free(flat: Tensor) -> None:
    flat.untyped_storage().resize_(0)


def _restore(flat: Tensor) -> None:
    flat.untyped_storage().resize_(flat.numel() * flat.element_size())
