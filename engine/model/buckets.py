"""Buckets: units whose parameters lie in one flat buffer and whose gradients are reduced by one collective.

A bucket is what ZeRO shards: with N data-parallel ranks it is padded to a multiple of N and rank i owns slice i.
ZeRO-0 and 1 fill buckets in the order in which backward finishes units, up to `bucket_kb` (Li et al. 2020, PyTorch
Distributed, section 3.2.2). ZeRO-2 and 3 reduce unit by unit, so there a bucket is a unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from engine.job.job import Job
from engine.model.params import Param, replicated_size, unit_params, unit_size
from engine.model.units import TOKENS, lane_units

FP32 = 4  # bytes of an element that is never in half precision: norm statistics, losses


@dataclass(frozen=True)
class Bucket:
    """Units in one flat buffer. Sizes count elements on one tensor-parallel rank."""

    units: tuple[str, ...]
    size: int
    shards: int
    has_replicated: bool

    @property
    def name(self) -> str:
        return self.units[0] if len(self.units) == 1 else f"{self.units[0]}..{self.units[-1]}"

    @property
    def padded(self) -> int:
        """Size with padding to a multiple of `shards`."""
        return ceil(self.size / self.shards) * self.shards

    @property
    def shard(self) -> int:
        return self.padded // self.shards

    def params(self, job: Job) -> tuple[Param, ...]:
        """All parameters in buffer order: the tensor-split ones first, then those every tensor rank holds whole."""
        every = [p for unit in self.units for p in unit_params(job.model, job.plan.tp, unit)]
        return (*(p for p in every if p.split is not None), *(p for p in every if p.split is None))


def lane_buckets(job: Job, lane: int) -> tuple[Bucket, ...]:
    """The buckets of pipeline rank `lane`, in the order in which backward finishes them."""
    model, tp = job.model, job.plan.tp
    cap = job.plan.bucket_kb * 1024 if job.effective_zero < 2 else 0
    groups: list[list[str]] = []
    filled = 0
    for unit in reversed(lane_units(job, lane)):
        size = unit_size(model, tp, unit) * job.precision.grad
        if not groups or filled + size > cap or unit == TOKENS:
            groups.append([])
            filled = 0
        groups[-1].insert(0, unit)
        filled += size
    return tuple(_bucket(job, tuple(units)) for units in groups)


def _bucket(job: Job, units: tuple[str, ...]) -> Bucket:
    model, tp = job.model, job.plan.tp
    shards = job.plan.dp if job.effective_zero else 1
    size = sum(unit_size(model, tp, unit) for unit in units)
    return Bucket(units, size, shards, any(replicated_size(model, tp, unit) for unit in units))
