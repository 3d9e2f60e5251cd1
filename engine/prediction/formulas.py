"""What a plan should hold and send, from the job's numbers alone: the model family's closed forms, and the plan's.

Nothing here looks at a run, so that "measured beside predicted" compares two independent answers. Where a family or a
schedule has no formula, its units or its program are counted instead (`engine.prediction.counted`).
N: data degree (`sharding_axis`); m: micro-batches.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

from engine.communication.collective_bytes import logical_bytes
from engine.job.axes import sharding_axis
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.model.buckets import buckets_of_pp_rank
from engine.model.family import family_of, loaded
from engine.model.params import replicated_size, unit_size
from engine.model.unit_kinds import kind_of
from engine.model.units import (
    TOKENS,
    block_names,
    boundary_bytes,
    input_bytes,
    needs,
    output_bytes,
    pp_rank_of_stage,
    recomputes,
    tied_pp_ranks,
    units_of_pp_rank,
)
from engine.prediction import counted
from engine.program.compile import compile_job
from engine.program.dryrun import in_flight


def bubble_formula(job: Job) -> Fraction | None:
    """Idle ÷ total with equal stages and free communication, as the schedule's own file derives it.

    None where no formula is known; what a program idles is counted by `engine.program.dryrun`. Raises `Unknown`.
    """
    plan, schedule = job.plan, SCHEDULES[job.plan.schedule]
    return schedule.bubble(plan.pp, plan.microbatches, plan.chunks) if schedule.bubble else None


def in_flight_formula(job: Job, pp_rank: int) -> int:
    """Micro-batch activations (of one chunk each) that pipeline rank `pp_rank` holds at most, until their weight parts.

    Counted on the program where the schedule has no formula. Raises `Unknown`.
    """
    plan, schedule = job.plan, SCHEDULES[job.plan.schedule]
    if schedule.in_flight is None:
        return in_flight(compile_job(job))[pp_rank]
    return schedule.in_flight(plan.pp, plan.microbatches, plan.chunks, pp_rank)


class ClosedForms(Protocol):
    """What a family may say in closed form, by kind of unit; what it is: see the functions below that ask for it."""

    def parameters(self, job: Job) -> int:
        """Parameters of the whole model."""

    def activation_bytes(self, job: Job, kind: str) -> int:
        """Bytes that a unit of a kind saves for the backward of one micro-batch, on one rank."""

    def held_for_weight_bytes(self, job: Job, kind: str) -> int:
        """Bytes that the input part of its split backward leaves for the weight part, on one rank."""

    def model_flops(self, job: Job) -> int:
        """FLOPs of a step of the whole job, without recomputation."""

    def tensor_bytes(self, job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
        """Logical bytes that a rank of `pp_rank` sends inside layers in a step, by (axis, operation)."""


def closed_forms(job: Job) -> ClosedForms | None:
    """Those of the job's family; None if it has none, and all is counted. Raises `Unknown`."""
    path = family_of(job.model).closed_forms
    found: ClosedForms | None = None if path is None else loaded(path)
    return found


def parameters(job: Job) -> int:
    """Parameters of the whole model."""
    forms = closed_forms(job)
    return forms.parameters(job) if forms else counted.parameters(job)


def state_bytes(job: Job, pp_rank: int) -> dict[str, int]:
    """Bytes of params, grads and optimizer on each rank of a pipeline rank; padding of buckets included.

    fp32 Adam per parameter: 16 (ZeRO-0), 8 + 8/N (1), 4 + 12/N (2), 16/N (3); with 2-byte parameters and gradients 16,
    4 + 12/N, 2 + 14/N, 16/N (Rajbhandari et al. 2020, figure 1, with K = 8 and K = 12).
    """
    zero, size = job.effective_zero, job.precision
    whole = sum(b.padded for b in buckets_of_pp_rank(job, pp_rank))
    shard = sum(b.shard for b in buckets_of_pp_rank(job, pp_rank))
    return {
        "params": (shard if zero == 3 else whole) * size.compute,
        "grads": (shard if zero >= 2 else whole) * size.grad,
        "optimizer": (shard if zero else whole) * size.optimizer,
    }


def activation_bytes(job: Job, unit: str) -> int:
    """Bytes a unit saves for the backward of one micro-batch."""
    forms = closed_forms(job)
    return forms.activation_bytes(job, kind_of(unit).name) if forms else counted.activation_bytes(job, unit)


def kept_bytes(job: Job, unit: str) -> int:
    """What a unit's forward leaves until backward, or until it is recomputed: then its input alone."""
    return input_bytes(job, unit) if recomputes(job, unit) else activation_bytes(job, unit)


def held_for_weight_bytes(job: Job, unit: str) -> int:
    """Bytes the input part of a split backward leaves for the weight part of one micro-batch."""
    forms = closed_forms(job)
    return forms.held_for_weight_bytes(job, kind_of(unit).name) if forms else counted.held_for_weight_bytes(job, unit)


def message_bytes(job: Job) -> int:
    """One activation or gradient between stages where all are alike: what a block gives."""
    return output_bytes(job, block_names(job.model)[0])


def model_flops(job: Job) -> int:
    """FLOPs that a step of the whole job needs, without recomputation: what MFU counts."""
    forms = closed_forms(job)
    return forms.model_flops(job) if forms else counted.model_flops(job)


def predicted_communication(job: Job, pp_rank: int = 0) -> dict[tuple[str, str], int]:
    """Logical bytes per step of each rank of pipeline rank `pp_rank`, by (axis, operation)."""
    total: Counter[tuple[str, str]] = Counter()
    for part in (_tensor, _norms, _data, _tie, _messages, _scalars):
        total.update(part(job, pp_rank))
    return {key: nbytes for key, nbytes in sorted(total.items()) if nbytes}


def _tensor(job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
    """Inside layers."""
    forms = closed_forms(job)
    return forms.tensor_bytes(job, pp_rank) if forms else counted.tensor_bytes(job, pp_rank)


def _norms(job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
    """Sequence parallelism sums the gradients of the parameters every tensor rank holds whole."""
    if not job.scatters_sequence:
        return {}
    t, times = job.plan.tp, _reductions_per_step(job)
    sizes = [
        sum(replicated_size(job.model, job.plan.degrees, unit) for unit in bucket.units)
        for bucket in buckets_of_pp_rank(job, pp_rank)
    ]
    return {
        ("tp", "all_reduce"): times * sum(logical_bytes("all_reduce", t, size * job.precision.grad) for size in sizes)
    }


def _data(job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
    """Gradients and parameters over the axes that divide the batch: 2(N−1)/N·Ψ over each for ZeRO-0; see `_sharded`.

    What ZeRO cuts along one of them is summed over the others in shards, once a step.
    """
    zero, size, total = job.effective_zero, job.precision, Counter[tuple[str, str]]()
    for b in buckets_of_pp_rank(job, pp_rank):
        for axis in b.reduce_axes:
            if axis != b.shard_axis:
                total[axis, "all_reduce"] += logical_bytes("all_reduce", job.plan.degree(axis), b.shard * size.grad)
    return {**total, **(_sharded(job, pp_rank) if zero else {})}


def _sharded(job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
    """Over the axis that ZeRO cuts along: 2(N−1)/N·Ψ for ZeRO-1; ZeRO-2 and 3 repeat per micro-batch."""
    axis, zero, size = sharding_axis(), job.effective_zero, job.precision
    n, buckets = job.plan.degree(axis), buckets_of_pp_rank(job, pp_rank)
    gathers = {b.name: _gathers_per_step(job, pp_rank, b.name) if zero == 3 else 1 for b in buckets}
    scattered = sum(logical_bytes("reduce_scatter", n, b.padded * size.grad) for b in buckets)
    gathered = sum(logical_bytes("all_gather", n, b.padded * size.compute) * gathers[b.name] for b in buckets)
    return {
        (axis, "reduce_scatter"): scattered * _reductions_per_step(job),
        (axis, "all_gather"): gathered,
    }


def _reductions_per_step(job: Job) -> int:
    return job.plan.microbatches if job.effective_zero >= 2 else 1


def _gathers_per_step(job: Job, pp_rank: int, bucket: str) -> int:
    """ZeRO-3: once before each forward and each backward that uses it, or once a step if kept."""
    if job.plan.keep_gathered:
        return 1
    users = [u for u in units_of_pp_rank(job, pp_rank) if u != TOKENS and bucket in needs(job.model, u)]
    return 2 * len(users) * job.plan.microbatches


def _tie(job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
    if pp_rank not in tied_pp_ranks(job):
        return {}
    size = unit_size(job.model, job.plan.degrees, TOKENS)
    shards = job.plan.degree(sharding_axis()) if job.effective_zero else 1
    return {("tie", "all_reduce"): logical_bytes("all_reduce", 2, -(-size // shards) * job.precision.grad)}


def _messages(job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
    """What goes over each boundary, per micro-batch and direction."""
    m = job.plan.microbatches
    home = [pp_rank_of_stage(job.plan, s) for s in range(job.plan.pp * job.plan.chunks)]
    total: Counter[tuple[str, str]] = Counter()
    for (source, target), size in zip(pairwise(home), boundary_bytes(job), strict=True):
        for end, does in ((source, ("send_act", "recv_grad")), (target, ("recv_act", "send_grad"))):
            if source != target and end == pp_rank:
                total.update({("pp", op): m * size for op in does})
    return dict(total)


def _scalars(job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
    """Loss and squared gradient norm, two doubles, summed over one axis after the other."""
    degrees = [d for d in job.plan.degrees.values() if d > 1]
    return {("world", "all_reduce"): sum(logical_bytes("all_reduce", d, 16) for d in degrees)}
