"""Seconds that no step can be shorter than, for thousands of plans at once and for every partition of a plan.

A bound counts the computing of each pipeline rank, what has to be computed before it can begin, and the collectives of
its data group; an estimate is only worth its while where the bound is below the best estimate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.job.schedules import SCHEDULES
from engine.planner.estimate.distinct_stages import RankKind, bucket_sizes, rank_kinds, stage_units, whole_backwards
from engine.planner.estimate.events import HOST, UNITS, WORKS
from engine.planner.estimate.prices import Block, Prices
from engine.planner.plans import Shape, Variants
from engine.program.kinds import Kind

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


def bound(prices: Prices, shape: Shape, plans: Variants) -> Floats:
    """Seconds that no step of these plans can be shorter than, [plans]."""
    return bound_and_data(prices, shape, plans)[0]


def bound_and_data(prices: Prices, shape: Shape, plans: Variants) -> tuple[Floats, Floats]:
    """Seconds that no step of these plans can be shorter than, and those of the data axis before the optimizer step,
    [plans] each.

    Every pipeline rank has its own work to do, once its first micro-batch has come down to it; under ZeRO-2 and 3 its
    data group has its reductions and gathers to do. Where a rank can only hold so many micro-batches at once, all of
    them pass it in so many at a time.
    """
    block = prices.block(shape, plans)
    counts, pp_rank_of = stage_units(prices.job.model, shape.partition, shape.schedule, shape.pp, shape.chunks)
    kinds = rank_kinds(prices.job, shape)
    kind_of = _kind_of_rank(kinds, shape.pp)
    sent, after = _data_axis(prices, block, kinds)
    busy = busy_of(prices, block, counts[None], pp_rank_of)[0]
    return np.asarray((np.maximum(busy, sent[kind_of]) + after[kind_of]).max(axis=0)), sent.max(axis=0)


def busy_of(prices: Prices, block: Block, counts: Numbers, pp_rank_of: Numbers) -> Floats:
    """Seconds until each pipeline rank can have done its work, [partitions, pipeline ranks, plans].

    counts: [partitions, stages, UNITS]; pp_rank_of: [stages].
    """
    columns = range(len(block.mesh.tensor))
    return np.asarray(
        np.maximum.reduce([_busy_in_column(prices, block, column, counts, pp_rank_of) for column in columns])
    )


def _busy_in_column(prices: Prices, block: Block, column: int, counts: Numbers, pp_rank_of: Numbers) -> Floats:
    shape, microbatches, pp = block.shape, block.plans.microbatches, block.shape.pp
    forward_of, backward_of, ahead_of, input_of = (of[pp_rank_of] for of in unit_seconds(prices, block, column))
    forward = np.matmul(counts[:, :, None], forward_of)[:, :, 0]
    backward = np.matmul(counts[:, :, None], backward_of)[:, :, 0]
    on_rank = (pp_rank_of == np.arange(pp)[:, None]).astype(float)  # [pipeline ranks, stages]
    work = np.matmul(on_rank, forward + backward)
    split = not whole_backwards(shape.schedule)
    way = forward if split else forward + backward - ahead_of
    _, first_stage = np.unique(pp_rank_of, return_index=True)
    before = (np.cumsum(way, axis=1) - way)[:, first_stage]
    busy = before + microbatches * work
    if split:  # the weight parts can wait; but what leads to the last gradient of the first stage cannot
        there_and_back = forward + np.matmul(counts[:, :, None], input_of)[:, :, 0]
        before = (np.cumsum(there_and_back, axis=1) - there_and_back)[:, first_stage]
        busy = np.maximum(busy, before + microbatches * np.matmul(on_rank, there_and_back))
    at_most = SCHEDULES[shape.schedule].in_flight
    if at_most and shape.chunks == 1 and not split:
        at_once = np.array([at_most(pp, m, 1, 0) for m in microbatches.tolist()])
        busy = np.maximum(busy, (microbatches / at_once * way.sum(axis=1))[:, None])
    return np.asarray(busy)


def unit_seconds(prices: Prices, block: Block, column: int) -> tuple[Floats, Floats, Floats, Floats]:
    """On each pipeline rank of a column the seconds for a micro-batch of (forward of each of UNITS, [pipeline ranks,
    UNITS, plans]; backward of each; computing a block again, [pipeline ranks, plans], which a stage can do for its
    first block before the gradient is there; the input part of the backward of each unit, 0 where the schedule has no
    parts)."""
    shape, plans = block.shape, block.plans
    forward, backward, of_input = np.zeros((3, shape.pp, len(UNITS), len(plans)))
    ahead = np.zeros((shape.pp, len(plans)))
    places = np.stack([block.mesh.devices[column], block.mesh.tensor[column]])
    _, place = np.unique(places, axis=1, return_inverse=True)
    for which in np.unique(place).tolist():
        mine = np.flatnonzero(place.ravel() == which)
        work = prices.work(block, column, int(mine[0]), split=False)[:HOST].sum(axis=1)
        of_units = work.reshape(len(UNITS), len(WORKS), -1)
        forward[mine] = of_units[:, WORKS.index(Kind.FORWARD)]
        backward[mine] = of_units[:, 1:].sum(axis=1)
        ahead[mine] = of_units[UNITS.index("block"), WORKS.index(Kind.RECOMPUTE)]
        if not whole_backwards(shape.schedule):
            parts = prices.work(block, column, int(mine[0]))[:HOST].sum(axis=1).reshape(of_units.shape)
            of_input[mine] = parts[:, WORKS.index(Kind.BACKWARD_INPUT)]
    return forward, backward, ahead, of_input


def _data_axis(prices: Prices, block: Block, kinds: tuple[RankKind, ...]) -> tuple[Floats, Floats]:
    """([kinds, plans] seconds of the data axis before the optimizer step, of that and the gathers after it)."""
    plans, shape, precision = block.plans, block.shape, prices.job.precision
    sent, after = np.zeros((2, len(kinds), len(plans)))
    if shape.dp == 1:
        return sent, after
    for place, kind in enumerate(kinds):
        for zero in np.flatnonzero(np.bincount(plans.zero)).tolist():
            mine = plans.zero == zero
            padded, pp_rank = bucket_sizes(prices.job, shape, kind, zero).padded, kind.pp_ranks[0]
            reduction = "reduce_scatter" if zero else "all_reduce"
            reduce = block.mesh.slowest("dp", reduction, padded * precision.grad, pp_rank).sum()
            gather = block.mesh.slowest("dp", "all_gather", padded * precision.compute, pp_rank).sum() if zero else 0.0
            if zero >= 2:
                sent[place, mine] = plans.microbatches[mine] * reduce
            if zero == 3:
                sent[place, mine] += gather * (1 if prices.job.plan.keep_gathered else 2 * plans.microbatches[mine])
            after[place, mine] = gather if zero in (1, 2) else 0.0
    return sent, after


def _kind_of_rank(kinds: tuple[RankKind, ...], pp: int) -> Numbers:
    """The place of each pipeline rank's kind in `kinds`."""
    which = np.zeros(pp, np.int64)
    for place, kind in enumerate(kinds):
        which[list(kind.pp_ranks)] = place
    return which


def bound_of_partitions(prices: Prices, shape: Shape, plans: Variants) -> Floats:
    """Seconds that no step can be shorter than under any partition whatever, [plans].

    With w the work of all stages for a micro-batch, W its sum over the p pipeline ranks, m micro-batches: a rank with
    work w_j is busy for m·w_j after the first micro-batch has passed those before it, which takes at least r·Σ w_i,
    r being the least part of its work that a unit holds up the next one for. The shortest step that all p ranks can
    keep gives each as much as it allows, w_j = (T - r·Σ_{i<j} w_i) / m, so that W = T/r·(1 - (1 - r/m)^p). With
    several chunks a rank the first micro-batch passes one block at least of each rank before. And some rank computes
    ceil(layers / p) blocks, and reduces and gathers them.
    """
    block, pp, m = prices.block(shape, plans), shape.pp, plans.microbatches
    layers = prices.job.model.layers
    most_blocks = -(-layers // pp)
    found = [_data_of_blocks(prices, block, most_blocks)]
    split = not whole_backwards(shape.schedule)
    for column in range(len(block.mesh.tensor)):
        # of the fastest pipeline rank, [UNITS, plans]
        forward, backward, ahead, _ = (of.min(axis=0) for of in unit_seconds(prices, block, column))
        work = forward + backward
        total = work[0] + layers * work[1] + work[2]
        way = forward if split else work - np.stack([0 * ahead, ahead, 0 * ahead])
        found.append(m * most_blocks * work[1])
        if shape.chunks > 1:
            found.append(m * total / pp + (pp - 1) / 2 * way[1])
        else:
            held_up = np.minimum((way / np.where(work > 0, work, 1))[work.sum(axis=1) > 0].min(axis=0), m)
            found.append(held_up * total / -np.expm1(pp * np.log1p(-np.minimum(held_up / m, 1 - 1e-12))))
        at_most = SCHEDULES[shape.schedule].in_flight
        if at_most and shape.chunks == 1 and not split:
            at_once = np.array([at_most(pp, count, 1, 0) for count in m.tolist()])
            found.append(m / at_once * (total - pp * ahead))
    return np.asarray(np.maximum.reduce(found))


def _data_of_blocks(prices: Prices, block: Block, blocks: int) -> Floats:
    """[plans] seconds of the data axis under ZeRO-2 and 3 of a pipeline rank with so many blocks."""
    plans, shape, job = block.plans, block.shape, prices.job
    out = np.zeros(len(plans))
    if shape.dp == 1:
        return out
    kind = RankKind((1,), False, False, (0,))
    for zero in (2, 3):
        mine = plans.zero == zero
        if mine.any():
            nbytes = bucket_sizes(job, shape, kind, zero).padded
            times = plans.microbatches[mine]
            fastest = block.mesh.fastest("dp", "reduce_scatter", nbytes * job.precision.grad).sum()
            out[mine] = blocks * times * fastest
            if zero == 3:
                gather = block.mesh.fastest("dp", "all_gather", nbytes * job.precision.compute).sum()
                out[mine] += blocks * gather * (1 if job.plan.keep_gathered else 2 * times)
    return out
