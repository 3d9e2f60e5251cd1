"""What every plan of a shape holds at most: the peaks of `engine.prediction.peak_memory` without whole programs.

To walk the program of each plan, as that does, takes some 20 ms for each pipeline rank, and a search asks for a hundred
thousand plans. So these are derived by hand, for the distinct pipeline ranks alone:

- parameters, gradients, optimizer: the buckets' sizes under the ZeRO stage, to the byte;
- activations: what forwards keep and backwards free, counted along the order of the schedule, for the first and the
  last rank of each kind and for two rounds of micro-batches where further ones repeat them;
- gathered parameters: the unit in use and those ahead of it;
- buffers: one message ahead and those sent and not yet known to have arrived, the gradients that are filled, and those
  on their way into a shard.

The total is the sum of the categories' own peaks, which fall almost together: a percent or two above the true peak on
average. Interleaved stages with many messages in flight and split backwards of recomputed blocks have their peaks
apart, and there it may be 20 % above. `tests/engine/test_estimate.py::test_peaks_agree_with_the_footprint` holds
this to the program's own bookings on plans picked at random: state to the byte, the total within 3 % below and 15 %
above. Bytes are those of the pipeline
rank with the highest total. What is replayed gets its exact peak from the program (`engine.planner.search`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job, Model, Plan
from engine.job.schedules import SCHEDULES
from engine.model.units import output_bytes
from engine.planner.estimate.distinct_stages import (
    RankKind,
    bucket_sizes,
    in_use,
    rank_kinds,
    stage_units,
    whole_backwards,
)
from engine.planner.estimate.places import numbered
from engine.planner.plans import RECOMPUTES, Shape, Space, Variants
from engine.prediction.formulas import (
    activation_bytes,
    held_for_weight_bytes,
    in_flight_formula,
    kept_bytes,
)
from engine.program.kinds import Kind

Numbers = NDArray[np.int64]
CATEGORIES = ("params", "grads", "optimizer", "activations", "gathered", "buffers")
PARTS = (Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
RECEIVED = 1
"""Messages received ahead. Besides them a rank holds those sent and not known to have arrived: one for every forward
whose gradient has not come back."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """Bytes for one sequence a micro-batch, which all are proportional to it.

    kept, whole, left: [3 units, 2 sequence parallel, 3 recompute], left by a forward, saved once recomputed, and left
    by the input part of a split backward.
    message: [2 sequence parallel].
    """

    kept: Numbers
    whole: Numbers
    left: Numbers
    message: Numbers


def sizes(job: Job, tp: int) -> Sizes:
    """Of units of the job under tensor-parallel degree `tp`."""
    (kept, whole, left), message = np.zeros((3, 3, 2, 3), np.int64), np.zeros(2, np.int64)
    training = dataclasses.replace(job.training, batch=1)
    for scatter in range(2 if tp > 1 and job.model.seq % tp == 0 else 1):
        for place, recompute in enumerate(RECOMPUTES):
            plan = dataclasses.replace(
                job.plan, dp=1, tp=tp, microbatches=1, sequence_parallel=bool(scatter), recompute=recompute
            )
            one = dataclasses.replace(job, plan=plan, training=training)
            message[scatter] = output_bytes(one, "block0")
            for number, unit in enumerate(("embedding", "block0", "head")):
                at = number, scatter, place
                kept[at], whole[at] = kept_bytes(one, unit), activation_bytes(one, unit)
                left[at] = held_for_weight_bytes(one, unit)
    return Sizes(kept, whole, left, message)


def peaks(space: Space, shape: Shape, plans: Variants, unit: Sizes) -> Numbers:
    """Bytes on the worst pipeline rank of each plan, [categories, plans]."""
    rounds = np.unique(_rounds(shape, plans), return_inverse=True)
    of_kinds = [_of_rank(space, shape, plans, unit, kind, rounds) for kind in rank_kinds(space.job, shape)]
    stacked = np.stack(of_kinds)
    worst = stacked.sum(axis=1).argmax(axis=0)
    return np.asarray(stacked[worst, :, np.arange(len(plans))].T)


def _of_rank(
    space: Space, shape: Shape, plans: Variants, unit: Sizes, kind: RankKind, rounds: tuple[Numbers, Numbers]
) -> Numbers:
    """[categories, plans] of the first pipeline rank of a kind, which of all of them holds most micro-batches."""
    job = space.job
    size = space.job.training.batch // shape.dp // plans.microbatches
    out = np.zeros((len(CATEGORIES), len(plans)), np.int64)
    out[3] = _activations(shape, plans, unit, kind, job, rounds) * size
    if shape.pp > 1:
        unproven = _micro_batches(job, shape, kind.pp_ranks[0], plans.microbatches)
        if shape.pp == 2:  # both neighbours are one rank, so that every message says something about the others
            unproven = np.minimum(unproven, 4)
        out[5] = (unproven + RECEIVED) * unit.message[plans.sequence] * size
    for zero in np.unique(plans.zero):
        mine = plans.zero == zero
        buckets, precision = bucket_sizes(job, shape, kind, int(zero)), job.precision
        whole, shard = buckets.padded.sum(), buckets.shard.sum()
        out[0, mine] = (shard if zero == 3 else whole) * precision.compute
        out[1, mine] = (shard if zero >= 2 else whole) * precision.grad
        out[2, mine] = (shard if zero else whole) * precision.optimizer
        if zero == 3:
            out[4, mine] = _most_gathered(job, kind, buckets.padded) * precision.compute
        if zero >= 2:
            out[5, mine] += _most_reduced(buckets.padded, buckets.shard) * precision.grad
    return out


def _most_gathered(job: Job, kind: RankKind, padded: Numbers) -> int:
    """Elements gathered at a time: the unit in use and those ahead of it."""
    if job.plan.keep_gathered:
        return int(padded.sum())
    uses = in_use(job.model, kind, padded)
    window = min(1 + (job.plan.prefetch if job.plan.overlap else 0), len(uses))
    return int(max(uses[i : i + window].sum() for i in range(len(uses) - window + 1)))


def _most_reduced(padded: Numbers, shard: Numbers) -> int:
    """Elements of gradients on their way: the buffer that is filled, and one that is being reduced into a shard."""
    both = padded + shard
    if len(both) == 1:
        return int(both[0])
    return int(max(both[i] + both[i + 1] for i in range(len(both) - 1)))


def _activations(
    shape: Shape, plans: Variants, unit: Sizes, kind: RankKind, job: Job, rounds: tuple[Numbers, Numbers]
) -> Numbers:
    """Bytes at the peak for one sequence a micro-batch."""
    kept, whole, left = (of[:, plans.sequence, plans.recompute] for of in (unit.kept, unit.whole, unit.left))
    again = np.maximum(whole[1] - kept[1], 0)  # a block that is computed again
    # the head's are gone before a block is computed again
    first = np.maximum(again - kept[2], 0) if kind.last else again
    last = np.where(again > 0, np.maximum(whole[1] - left[1], 0), 0)
    held_by = np.concatenate([kept, left, [first, last]])
    peak = np.zeros(len(plans), np.int64)
    pp_ranks = dict.fromkeys((kind.pp_ranks[0], kind.pp_ranks[-1]))  # what the others hold lies between these two
    for i, m in enumerate(rounds[0].tolist()):
        mine = np.flatnonzero(rounds[1] == i)
        moments = [_moments(job, shape, m, pp_rank) for pp_rank in pp_ranks]
        peak[mine] = np.max([(counts @ held_by[:, mine]).max(axis=0) for counts in moments], axis=0)
    return peak


def _rounds(shape: Shape, plans: Variants) -> Numbers:
    """The number of micro-batches to look at for each plan: more than two rounds repeat the second one."""
    if _grows(shape, plans):
        return plans.microbatches
    return np.minimum(plans.microbatches, 2 * shape.pp + plans.microbatches % shape.pp)


def _grows(shape: Shape, plans: Variants) -> bool:
    """Whether a rank holds the more the more micro-batches there are, as under GPipe."""
    held = SCHEDULES[shape.schedule].in_flight
    most = int(plans.microbatches.max())
    few = min(most, 2 * shape.pp + most % shape.pp)
    return held is None or held(shape.pp, most, shape.chunks, 0) > held(shape.pp, few, shape.chunks, 0)


def _micro_batches(job: Job, shape: Shape, pp_rank: int, microbatches: Numbers) -> Numbers:
    """`in_flight_formula` of each number of micro-batches."""
    values, inverse = np.unique(microbatches, return_inverse=True)
    held_at_once = [_at_once(shape.schedule, shape.pp, shape.chunks, m, pp_rank) for m in values.tolist()]
    return np.array(held_at_once, np.int64)[inverse]


@lru_cache(maxsize=65536)
def _at_once(schedule: str, pp: int, chunks: int, microbatches: int, pp_rank: int) -> int:
    plan = Plan(schedule=schedule, pp=pp, chunks=chunks, microbatches=microbatches)
    return in_flight_formula(Job(plan=plan), pp_rank)


def _moments(job: Job, shape: Shape, microbatches: int, pp_rank: int) -> Numbers:
    """What a pipeline rank holds from time to time, [moments, 8]: embeddings, blocks and heads between their forward
    and their backward, and between the two parts of it; whether a block may be computed again next, and whether one
    has been for an input part."""
    held, (least, most) = SCHEDULES[shape.schedule].in_flight, SCHEDULES[shape.schedule].chunks
    if held and least == most == 1 and whole_backwards(shape.schedule):
        units, home = stage_units(job.model, shape.partition, shape.schedule, shape.pp, shape.chunks)
        mine = units[home == pp_rank].sum(axis=0) * held(shape.pp, microbatches, 1, pp_rank)
        return np.array([[*mine, 0, 0, 0, 1, 0]])
    return _counted(job.model, shape.partition, shape.schedule, shape.pp, shape.chunks, microbatches, pp_rank)


@lru_cache(maxsize=16384)
def _counted(
    model: Model,
    partition: tuple[int, ...] | None,
    schedule: str,
    pp: int,
    chunks: int,
    microbatches: int,
    pp_rank: int,
) -> Numbers:
    """Counted along the order of the pipeline rank."""
    units, _ = stage_units(model, partition, schedule, pp, chunks)
    none = np.zeros_like(units)
    split = units * (0, 1, 1)  # an embedding's backward comes whole, with the input parts
    table = np.concatenate(
        [
            np.concatenate(change, axis=1)
            for change in ((units, none), (-units, none), (-units, split), (none, -split))  # in the order of PARTS
        ]
    )
    kinds, stage = _order(schedule, pp, chunks, microbatches)[pp_rank]
    held_now = np.cumsum(table[kinds * len(units) + stage], axis=0)
    after = np.append(kinds[1:], PARTS.index(Kind.BACKWARD_WEIGHT))
    falls = after != PARTS.index(Kind.FORWARD)
    begins = (after == PARTS.index(Kind.BACKWARD)) | (after == PARTS.index(Kind.BACKWARD_INPUT))
    marks = np.stack([begins, kinds == PARTS.index(Kind.BACKWARD_INPUT)], axis=1)
    found = np.concatenate([held_now, marks], axis=1)[falls]
    return np.asarray(found[numbered(found)[1]])


@lru_cache(maxsize=256)
def _order(schedule: str, pp: int, chunks: int, microbatches: int) -> tuple[tuple[Numbers, Numbers], ...]:
    """(place in PARTS, stage) of what every pipeline rank does, in its order."""
    place = {kind: i for i, kind in enumerate(PARTS)}
    return tuple(
        (np.array([place[action.kind] for action in lane]), np.array([action.stage for action in lane], np.int64))
        for lane in SCHEDULES[schedule].order(pp, microbatches, chunks)
    )
