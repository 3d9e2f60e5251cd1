"""Buckets: units whose parameters lie in one flat buffer and whose gradients are reduced by the same collectives.

A bucket is what ZeRO shards: with N ranks along its `shard_axis` it is padded to a multiple of N and rank i owns slice
i. ZeRO-0 and 1 fill buckets in the order in which backward finishes units, up to `bucket_kb` (Li et al. 2020, PyTorch
Distributed, section 3.2.2). ZeRO-2 and 3 reduce unit by unit, so there a bucket is a unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from engine.job.axes import dividing, sharding_axis
from engine.job.job import Job
from engine.model.params import Param, batch_cuts, replicated_size, unit_params, unit_size
from engine.model.units import TOKENS, units_of_pp_rank

FP32 = 4  # bytes of an element that is never in half precision: norm statistics, losses


@dataclass(frozen=True)
class Bucket:
    """Units in one flat buffer. Sizes count elements on one rank.

    shards: in how many slices ZeRO cuts it, along shard_axis ("" if it does not). reduce_axes: along which its
    gradients are summed, in this order: all that divide the batch and do not cut its parameters.
    replicated: how much of it every tensor rank holds whole, at its end; partial_axes: along which the gradients of
    that part are to be summed before, since each tensor rank has seen a part of the sequence only.
    """

    units: tuple[str, ...]
    size: int
    shards: int
    shard_axis: str
    reduce_axes: tuple[str, ...]
    replicated: int
    partial_axes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its first and last unit: "block2..block3"; of a single unit that unit."""
        return self.units[0] if len(self.units) == 1 else f"{self.units[0]}..{self.units[-1]}"

    @property
    def padded(self) -> int:
        """Size with padding to a multiple of `shards`."""
        return ceil(self.size / self.shards) * self.shards

    @property
    def shard(self) -> int:
        """Elements that each of `shards` ranks keeps."""
        return self.padded // self.shards

    @property
    def sum_axes(self) -> tuple[str, ...]:
        """All its gradients are summed along, one after the other."""
        return (*self.partial_axes, *self.reduce_axes)

    def reduced(self, axis: str) -> int:
        """Elements of the tensor that the reduction along an axis works on; a slice once ZeRO has cut."""
        if axis in self.partial_axes:
            return self.replicated
        return self.padded if axis == self.shard_axis else self.shard

    def params(self, job: Job) -> tuple[Param, ...]:
        """All parameters in buffer order: those cut by tensor axes first, then those every tensor rank holds whole."""
        every = [p for unit in self.units for p in unit_params(job.model, job.plan.tp, unit)]
        return (*(p for p in every if p.is_cut("tensors")), *(p for p in every if not p.is_cut("tensors")))


def buckets_of_pp_rank(job: Job, pp_rank: int) -> tuple[Bucket, ...]:
    """The buckets of pipeline rank `pp_rank`, in the order in which backward finishes them."""
    model, degrees = job.model, job.plan.degrees
    cap = job.plan.bucket_kb * 1024 if job.effective_zero < 2 else 0
    groups: list[list[str]] = []
    filled, cuts = 0, tuple[str, ...]()
    for unit in reversed(units_of_pp_rank(job, pp_rank)):
        size, alike = unit_size(model, degrees, unit) * job.precision.grad, batch_cuts(model, degrees, unit)
        if not groups or filled + size > cap or unit == TOKENS or alike != cuts:
            groups.append([])
            filled, cuts = 0, alike
        groups[-1].insert(0, unit)
        filled += size
    return tuple(_bucket(job, tuple(units)) for units in groups)


def _bucket(job: Job, units: tuple[str, ...]) -> Bucket:
    model, degrees = job.model, job.plan.degrees
    cuts = batch_cuts(model, degrees, units[0])
    reduce_axes = tuple(axis for axis in dividing("batch") if degrees.get(axis, 1) > 1 and axis not in cuts)
    shard_axis = sharding_axis() if job.effective_zero else ""
    if shard_axis and shard_axis not in reduce_axes:
        raise ValueError(f"{units[0]} is cut along {shard_axis} already: ZeRO cannot cut it there again.")
    replicated = sum(replicated_size(model, degrees, unit) for unit in units)
    return Bucket(
        units=units,
        size=sum(unit_size(model, degrees, unit) for unit in units),
        shards=degrees[shard_axis] if shard_axis else 1,
        shard_axis=shard_axis,
        reduce_axes=reduce_axes,
        replicated=replicated,
        partial_axes=dividing("tensors") if job.scatters_sequence and replicated else (),
    )
