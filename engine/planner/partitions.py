"""Other partitions of the plans that might still win: which of them share the layers out better than evenly?

The search of all plans takes the partition that balances the FLOPs of the stages (`engine.model.units.stages`). Another
can be faster where time is not FLOPs (a block is recomputed and the head is not, an end waits for tensor collectives),
where a rank with several chunks holds an end, or where the balanced one does not fit. Trying all would multiply the
plans; it is enough to look at those whose bound over every partition (`bound_of_partitions`) is below the best
estimate.

Each of these is led downhill, from three partitions at once: the balanced one, and those that balance the work of the
ranks in seconds, with what is odd in the first or in the last chunks of a rank. Each move takes one block from one
stage to another. A step takes, but for the filling of the pipeline, as long as the busiest rank works, and these starts
have the least busiest rank that there is: what is left to decide is which ranks and chunks have the odd blocks, a move
or two away. This is no proof. On small models the tests try every partition and find none that is faster.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.job.schedules import SCHEDULES
from engine.planner.estimate.bounds import bound_of_partitions, busy_of, unit_seconds
from engine.planner.estimate.distinct_stages import rank_kinds, stage_units
from engine.planner.estimate.estimate import Estimator
from engine.planner.estimate.events import UNITS
from engine.planner.plans import Legal, Shape, Variants
from engine.planner.table import Place, PlanTable, fitting

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Partition = tuple[int, ...]
MOST_PLANS = 300
"""Plans that are led downhill in a search."""
EFFORT = 20_000
"""Events of programs that are looked at for it, as in `engine.planner.table.EFFORT`."""
AT_ONCE = 16
"""Neighbours that are looked at more closely than by their bound, those with the least bound."""
FEW_STAGES = 8
"""Up to so many stages, a block is moved between any two; of more, between stages of unlike ranks."""
LEANER_STEPS = 3
"""Steps towards less memory where no partition yet fits."""


@dataclass(frozen=True)
class Tried:
    """places: plans with other partitions that are faster than was asked, fastest first. unsure: plans that might be,
    by their bound over all partitions, and were not looked at."""

    places: list[Place]
    unsure: int


def other_partitions(table: PlanTable, nearly: Legal, limit: int, seconds: float) -> Tried:
    """Plans of the table, or nearly fitting ones, that take less than `seconds` under a partition of their own.

    limit: bytes on each rank.
    """
    hopeful = _hopeful(table, nearly, seconds)
    most, places, done = table.estimator.events + EFFORT, list[Place](), 0
    for shape, plan in hopeful[:MOST_PLANS]:
        if table.estimator.events >= most:
            break
        found = _downhill(table.estimator, shape, plan, limit, seconds)
        if found is not None:
            places.append(found)
            seconds = min(seconds, found.seconds)
        done += 1
    return Tried(sorted(places, key=lambda place: place.seconds), len(hopeful) - done)


def _hopeful(table: PlanTable, nearly: Legal, seconds: float) -> list[tuple[Shape, Variants]]:
    """Single plans that might take less than so many seconds, the most hopeful first. What is known of their schedule
    counts as in `PlanTable.best`, but under ZeRO-2 and 3, where it depends on what is sent."""
    found: list[tuple[float, Shape, Variants]] = []
    estimated, above = table.parts.sum(axis=0), table.above_bound()
    for number, (shape, plans) in enumerate([*table.shapes, *nearly]):
        if not _has_partitions(table.estimator, shape):
            continue
        least = bound_of_partitions(table.estimator, shape, plans)
        least *= 1 + np.where(plans.zero < 2, above[SCHEDULES.names.index(shape.schedule), plans.zero], 0.0)
        known = estimated[table.where[:, 0] == number] if number < len(table.shapes) else np.full(len(plans), np.nan)
        for i in np.flatnonzero(least < seconds).tolist():
            order = least[i] if math.isnan(known[i]) else known[i]
            found.append((float(order), shape, plans.where(np.array([i]))))
    return [(shape, plan) for _, shape, plan in sorted(found, key=lambda one: one[0])]


def _has_partitions(estimator: Estimator, shape: Shape) -> bool:
    several = 1 < shape.pp * shape.chunks < estimator.job.model.layers
    return several and "partition" not in estimator.space.fixed


def _downhill(estimator: Estimator, shape: Shape, plan: Variants, limit: int, seconds: float) -> Place | None:
    """The plan under the fastest partition met on the way that fits and takes less than so many seconds."""
    counts, pp_rank_of = stage_units(estimator.job.model, None, shape.schedule, shape.pp, shape.chunks)
    balanced: Partition = tuple(counts[:, 1].tolist())
    centres = [balanced, *(balanced_by_time(estimator, shape, plan, late) for late in (False, True))]
    tried, best, leaner = {balanced}, None, LEANER_STEPS
    while centres:
        around = {one for centre in centres for one in (centre, *_neighbours(estimator, shape, centre, pp_rank_of))}
        kept = _below(estimator, shape, plan, sorted(around - tried), pp_rank_of, seconds)
        tried |= around
        table, _, nearly = fitting(estimator, [(replaced(shape, one), plan) for one in kept], limit)
        faster = table.best(1, below=seconds, step=1)
        centres = []
        if faster:
            best = Place(table, faster[0])
            seconds = best.seconds
            centres = [_partition(best)]
        elif best is None and not len(table) and nearly and leaner:
            leaner -= 1
            centres = [one.partition for one, _ in nearly[:1] if one.partition]
    return best


def _partition(place: Place) -> Partition:
    partition = place.shape.partition
    assert partition is not None
    return partition


def replaced(shape: Shape, partition: Partition | None) -> Shape:
    return dataclasses.replace(shape, partition=partition)


def _below(
    estimator: Estimator, shape: Shape, plan: Variants, partitions: list[Partition], pp_rank_of: Numbers, seconds: float
) -> list[Partition]:
    """Those of the partitions with the least bounds, all below so many seconds."""
    if not partitions:
        return []
    stages = len(pp_rank_of)
    counts = np.zeros((len(partitions), stages, len(UNITS)), np.int64)
    counts[:, 0, 0] = counts[:, -1, 2] = 1
    counts[:, :, 1] = partitions
    bounds = busy_of(estimator, estimator.block(shape, plan), counts, pp_rank_of).max(axis=1)[:, 0]
    order = np.argsort(bounds, kind="stable")[:AT_ONCE]
    return [partitions[i] for i in order.tolist() if bounds[i] < seconds]


def _neighbours(estimator: Estimator, shape: Shape, sizes: Partition, pp_rank_of: Numbers) -> Iterator[Partition]:
    """Partitions with one block moved from one stage to another."""
    stages = _unlike(estimator, replaced(shape, sizes), pp_rank_of) if len(sizes) > FEW_STAGES else range(len(sizes))
    chosen = sorted(stages)
    for source in chosen:
        for target in chosen:
            if source != target and sizes[source] > 1:
                moved = list(sizes)
                moved[source] -= 1
                moved[target] += 1
                yield tuple(moved)


def _unlike(estimator: Estimator, shape: Shape, pp_rank_of: Numbers) -> set[int]:
    """The largest and the smallest stage of the first and the last rank of each kind."""
    assert shape.partition is not None
    sizes, found = np.array(shape.partition), set()
    for kind in rank_kinds(estimator.job, shape):
        for pp_rank in (kind.pp_ranks[0], kind.pp_ranks[-1]):
            mine = np.flatnonzero(pp_rank_of == pp_rank)
            found |= {int(mine[sizes[mine].argmax()]), int(mine[sizes[mine].argmin()])}
    return found


def balanced_by_time(estimator: Estimator, shape: Shape, plan: Variants, late: bool = False) -> Partition:
    """The partition whose busiest rank has the least work in seconds, each rank's blocks shared evenly by its chunks;
    late: what is odd goes to its last chunks and not to its first.

    Every further block goes to the rank that has then the least work, the first of equals.
    """
    counts, pp_rank_of = stage_units(estimator.job.model, None, shape.schedule, shape.pp, shape.chunks)
    block = estimator.block(shape, plan)
    work = np.maximum.reduce(
        [np.add(*unit_seconds(estimator, block, column)[:2]) for column in range(len(block.mesh.tensor))]
    )
    work = work[:, :, 0]
    ends = np.zeros((shape.pp, len(UNITS)))
    np.add.at(ends, pp_rank_of, counts * (1, 0, 1))
    sizes = np.ones(len(pp_rank_of), np.int64)
    load = (ends * work).sum(axis=1) + np.bincount(pp_rank_of) * work[:, 1]
    for _ in range(estimator.job.model.layers - len(sizes)):
        pp_rank = int((load + work[:, 1]).argmin())
        mine = np.flatnonzero(pp_rank_of == pp_rank)
        mine = mine[::-1] if late else mine
        sizes[mine[sizes[mine].argmin()]] += 1
        load[pp_rank] += work[pp_rank, 1]
    return tuple(sizes.tolist())
