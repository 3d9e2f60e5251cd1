"""Plans that fit, as a table: their knobs, bytes and seconds in columns, so that thousands can be compared at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.planner.estimate.bounds import bound_and_data
from engine.planner.estimate.distinct_stages import rank_kinds
from engine.planner.estimate.estimate import PARTS, Estimator
from engine.planner.estimate.memory import CATEGORIES, peaks
from engine.planner.plans import RECOMPUTES, Legal, Shape, Variants, job_of, walked

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
COLUMNS = ("tp", "pp", "schedule", "chunks", "zero", "microbatch size", "sequence_parallel", "recompute")
"""Knobs that say which plan it is; dp and the number of micro-batches follow from them."""
AT_ONCE = 8
"""Plans that are estimated together at most."""
EFFORT = 60_000
"""Events of programs that a search looks at, some ten microseconds each."""
HOPE_OF_AN_EVENT = 1e-6
"""A plan whose program has so many events more has to promise to be faster by this part for each, to come first."""


@dataclass(frozen=True)
class Dropped:
    """Plans that do not fit because of one category: the first, in the order of CATEGORIES, that is over the limit with
    those before it. example: the one with the least too much, `over` bytes."""

    category: str
    count: int
    example: Job
    over: int


@dataclass(frozen=True, eq=False)
class PlanTable:
    """knobs: [plans, COLUMNS]. memory: [CATEGORIES, plans]. bound: [plans], seconds that a step takes at least.
    parts: [PARTS, plans], NaN until a plan is estimated. where: (shape, variant) of each. programs: [plans, ...], equal
    for plans whose programs differ in what things cost only; events: [plans], of these about. unsure_by: [plans],
    seconds to which what a bound leaves out is about proportional."""

    estimator: Estimator
    shapes: Legal
    where: Numbers
    knobs: Numbers
    memory: Numbers
    bound: Floats
    parts: Floats
    programs: Numbers
    events: Floats
    unsure_by: Floats

    def __len__(self) -> int:
        return len(self.where)

    def job(self, i: int) -> Job:
        at, variant = self.where[i].tolist()
        shape, plans = self.shapes[at]
        return job_of(self.estimator.space, shape, plans, variant)

    def best(
        self,
        count: int,
        among: Numbers | None = None,
        below: float = math.inf,
        effort: int = EFFORT,
        step: int = AT_ONCE,
    ) -> list[int]:
        """The fastest plans, at most `count` of those that take less than `below` seconds, the fastest first.

        The most hopeful plans are estimated first, until no other can be among so many, or until the programs looked at
        have `effort` events. `unsure` says how many plans might then still be faster.
        """
        chosen = np.arange(len(self)) if among is None else among
        chosen = chosen[np.argsort(self.bound[chosen], kind="stable")]
        most = self.estimator.events + effort
        while len(left := self._open(chosen, count, below)) and self.estimator.events < most:
            self._estimate(self._most_hopeful(left)[:step])
        seconds = self.parts[:, chosen].sum(axis=0)
        order = np.argsort(np.where(np.isnan(seconds), math.inf, seconds), kind="stable")[:count]
        return [int(i) for i in chosen[order] if self.parts[:, i].sum() < below]

    @property
    def estimated(self) -> int:
        return int((~np.isnan(self.parts[0])).sum())

    def unsure(self, seconds: float) -> int:
        """How many plans that are not estimated might take less than so many seconds."""
        return len(self._open(np.arange(len(self)), 1, seconds))

    def _open(self, chosen: Numbers, count: int, below: float) -> Numbers:
        """Those of the chosen plans that are not estimated and might be among the `count` fastest."""
        seconds = self.parts[:, chosen].sum(axis=0)
        known = np.sort(seconds[~np.isnan(seconds)])
        limit = min(known[count - 1] if len(known) >= count else math.inf, below)
        return np.asarray(chosen[np.isnan(seconds) & (self.bound[chosen] < limit)])

    def _most_hopeful(self, left: Numbers) -> Numbers:
        """Of these plans the one that promises most, and all whose program is the same, which are estimated with it for
        little more; the most hopeful first.

        A plan promises its bound, and so much more as was found for the best plan of its schedule and ZeRO stage: what
        a bound leaves out is much the same part of the data axis's time for those, or of the bound where there is none.
        """
        promised = self.bound[left] + self.unsure_by[left] * self.above_bound()[self._kinds(left)]
        left = left[np.argsort(promised * (1 + HOPE_OF_AN_EVENT * self.events[left]), kind="stable")]
        return np.asarray(left[(self.programs[left] == self.programs[left[0]]).all(axis=1)])

    def above_bound(self) -> Floats:
        """[schedules, ZeRO stages]: the least part of `unsure_by` that an estimated plan takes longer than its bound,
        0 where there is none.
        """
        least = np.full((len(SCHEDULES.names), 4), np.inf)
        known = np.flatnonzero(~np.isnan(self.parts[0]))
        longer = self.parts[:, known].sum(axis=0) - self.bound[known]
        np.minimum.at(least, self._kinds(known), longer / self.unsure_by[known])
        return np.where(np.isinf(least), 0.0, least)

    def _kinds(self, these: Numbers) -> tuple[Numbers, Numbers]:
        return self.knobs[these, COLUMNS.index("schedule")], self.knobs[these, COLUMNS.index("zero")]

    def _estimate(self, these: Numbers) -> None:
        """Fills in the parts of some plans."""
        by_shape = [these[self.where[these, 0] == at] for at in np.unique(self.where[these, 0])]
        plans_of_shapes = []
        for mine in by_shape:
            shape, plans = self.shapes[self.where[mine[0], 0]]
            plans_of_shapes.append((shape, plans.where(self.where[mine, 1])))
        for mine, found in zip(by_shape, self.estimator.parts(plans_of_shapes), strict=True):
            self.parts[:, mine] = found

    def nearest(self, knobs: Numbers) -> dict[str, int]:
        """By knob, the plan that has another value of it than `knobs` and differs in as few others as there can be; of
        several the fastest. Of large programs only where there is no smaller one, and of very large ones none if that
        can be. A knob that no other plan turns is left out."""
        same = self.knobs == knobs
        found = {}
        for place, name in enumerate(COLUMNS):
            others = self._smaller(np.flatnonzero(~same[:, place]), 2 * EFFORT)
            if len(others):
                changed = (~same[others]).sum(axis=1)
                others = self._smaller(others[changed == changed.min()], EFFORT // 4)
                known = not np.isnan(self.parts[0, others]).all()
                found[name] = self.best(1, others, effort=0 if known else 1, step=1)[0]
        return found

    def _smaller(self, these: Numbers, events: int) -> Numbers:
        """Those of the plans whose programs have no more events, or if there is none, than the smallest."""
        least = self.events[these].min(initial=math.inf)
        return np.asarray(these[self.events[these] <= max(events, least)])


@dataclass(frozen=True, eq=False)
class Place:
    """An estimated plan of a table."""

    table: PlanTable
    i: int

    @property
    def seconds(self) -> float:
        """Of a step, as estimated."""
        return float(self.table.parts[:, self.i].sum())

    @property
    def shape(self) -> Shape:
        return self.table.shapes[int(self.table.where[self.i, 0])][0]

    @property
    def job(self) -> Job:
        return self.table.job(self.i)


def fitting(estimator: Estimator, legal: Legal, limit: int) -> tuple[PlanTable, tuple[Dropped, ...], Legal]:
    """The plans whose peak is at most `limit` bytes; those whose is not, by what is too much; and those of them that
    might fit under another partition, the nearest first."""
    kept, kept_memory, lost = [], [], _Lost(estimator, limit)
    nearly: list[tuple[int, Shape, Variants]] = []
    for shape, plans in legal:
        memory = peaks(estimator.space, shape, plans, estimator.unit_sizes(shape.tp))
        fits = memory.sum(axis=0) <= limit
        lost.note(shape, plans.where(~fits), memory[:, ~fits])
        nearly += _nearly(estimator, shape, plans, memory.sum(axis=0), limit)
        if fits.any():
            kept.append((shape, plans.where(fits)))
            kept_memory.append(memory[:, fits])
    hopes = [(shape, plans) for _, shape, plans in sorted(nearly, key=lambda one: one[0])]
    if not kept:
        none = np.empty((0, len(COLUMNS)), np.int64)
        whole = PlanTable(
            estimator, [], none[:, :2], none, none.T, np.empty(0), np.empty((len(PARTS), 0)), none, *np.empty((2, 0))
        )
        return whole, lost.dropped(), hopes
    where = [np.stack([np.full(len(plans), i), np.arange(len(plans))], axis=1) for i, (_, plans) in enumerate(kept)]
    knobs = [_knobs(estimator, shape, plans) for shape, plans in kept]
    bounds, data = np.concatenate([np.stack(bound_and_data(estimator, shape, plans)) for shape, plans in kept], axis=1)
    whole = PlanTable(
        estimator, kept, np.concatenate(where), np.concatenate(knobs), np.concatenate(kept_memory, axis=1), bounds,
        np.full((len(PARTS), len(bounds)), np.nan), np.concatenate([_programs(*one) for one in kept]),
        np.concatenate([_events(estimator, *one) for one in kept]), np.where(data > 0, data, bounds),
    )  # fmt: skip
    return whole, lost.dropped(), hopes


def _nearly(
    estimator: Estimator, shape: Shape, plans: Variants, memory: Numbers, limit: int
) -> Iterator[tuple[int, Shape, Variants]]:
    """Plans that would fit if the fullest rank gave up one of its blocks and all that comes with it, and their least
    peak in bytes. memory: [plans]."""
    if 1 < shape.pp * shape.chunks < estimator.job.model.layers and "partition" not in estimator.space.fixed:
        most = max(sum(kind.blocks) for kind in rank_kinds(estimator.job, shape))
        near = (memory > limit) & (memory * (most - 1) <= limit * most)
        if near.any():
            yield int(memory[near].min()), shape, plans.where(near)


def _knobs(estimator: Estimator, shape: Shape, plans: Variants) -> Numbers:
    alike = (shape.tp, shape.pp, SCHEDULES.names.index(shape.schedule), shape.chunks)
    size = estimator.job.training.batch // shape.dp // plans.microbatches
    return np.column_stack(
        [np.full((len(plans), len(alike)), alike), plans.zero, size, plans.sequence, plans.recompute]
    )


def _programs(shape: Shape, plans: Variants) -> Numbers:
    """Nearly what `engine.planner.estimate.estimate.Alike` says; buckets are left out."""
    same = (shape.pp, SCHEDULES.names.index(shape.schedule), shape.chunks, shape.dp > 1, shape.tp > 1)
    again = plans.recompute == RECOMPUTES.index("full")
    return np.column_stack(
        [np.full((len(plans), len(same)), same), plans.microbatches, np.maximum(plans.zero, 1), again]
    )


def _events(estimator: Estimator, shape: Shape, plans: Variants) -> Floats:
    """About so many events has the program in outline: of each micro-batch on each stage, and of each of its blocks
    where they are reduced and gathered one by one."""
    blocks = estimator.job.model.layers / (shape.pp * shape.chunks)
    times = np.array([sum(walked(m, shape.pp)) for m in plans.microbatches.tolist()])
    of_a_block = np.array([0.0, 0.0, 10.0, 26.0]) * (shape.dp > 1)
    return np.asarray(shape.pp * shape.chunks * times * (15 + of_a_block[plans.zero] * blocks))


class _Lost:
    """Counts the plans that do not fit."""

    def __init__(self, estimator: Estimator, limit: int) -> None:
        self.estimator, self.limit = estimator, limit
        self.counts: dict[int, int] = {}
        self.least: dict[int, tuple[int, Shape, Variants, int]] = {}

    def note(self, shape: Shape, plans: Variants, memory: Numbers) -> None:
        if not len(plans):
            return
        over, breaks = memory.sum(axis=0) - self.limit, (np.cumsum(memory, axis=0) > self.limit).argmax(axis=0)
        for category in np.unique(breaks).tolist():
            mine = np.flatnonzero(breaks == category)
            best = int(mine[over[mine].argmin()])
            self.counts[category] = self.counts.get(category, 0) + len(mine)
            if category not in self.least or over[best] < self.least[category][0]:
                self.least[category] = (int(over[best]), shape, plans, best)

    def dropped(self) -> tuple[Dropped, ...]:
        found = []
        for category, count in sorted(self.counts.items()):
            over, shape, plans, i = self.least[category]
            found.append(Dropped(CATEGORIES[category], count, job_of(self.estimator.space, shape, plans, i), over))
        return tuple(found)
