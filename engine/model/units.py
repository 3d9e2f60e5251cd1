"""Units: what is gathered, reduced and recomputed as one, and how they are dealt out to stages and buckets.

Which units there are the model's family says (`engine.model.family`).
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from typing import TYPE_CHECKING

from engine.job.schedules import SCHEDULES
from engine.model.family import family_of
from engine.model.unit_kinds import kind_of

if TYPE_CHECKING:
    from engine.job.job import Job, Model, Plan

TOKENS = "tokens"
"""The unit that both ends of a tied model need: its token matrix. It computes nothing by itself."""


@lru_cache(maxsize=256)
def compute_units(model: Model) -> tuple[str, ...]:
    """Units in the order of the forward pass."""
    return family_of(model).units(model)


def block_names(model: Model) -> tuple[str, ...]:
    """The blocks alone, in the order of the forward pass."""
    return tuple(unit for unit in compute_units(model) if kind_of(unit).block)


def one_of_each_kind(model: Model) -> tuple[str, ...]:
    """The first compute unit of each kind."""
    found: dict[str, str] = {}
    for unit in compute_units(model):
        found.setdefault(kind_of(unit).name, unit)
    return tuple(found.values())


def needs(model: Model, unit: str) -> tuple[str, ...]:
    """The units whose parameters a compute unit uses."""
    return family_of(model).needs(model, unit)


def recomputes(job: Job, unit: str) -> bool:
    """Whether backward runs the unit's forward again, of which nothing but the input is kept."""
    return job.plan.recompute == "full" and kind_of(unit).block


def forward_cost(model: Model, unit: str) -> float:
    """Forward FLOPs of a unit for one token; what the stage partition balances (backward costs twice as much)."""
    return family_of(model).forward_cost(model, kind_of(unit).name)


def output_shape(job: Job, unit: str) -> tuple[int, ...]:
    """Of one micro-batch on one rank."""
    return family_of(job.model).output_shape(job, kind_of(unit).name)


def output_bytes(job: Job, unit: str) -> int:
    """Bytes of `output_shape` in the type that the job computes in."""
    return prod(output_shape(job, unit)) * job.precision.compute


def input_bytes(job: Job, unit: str) -> int:
    """Of what the unit before gives; 0 for the first."""
    units = compute_units(job.model)
    place = units.index(unit)
    return output_bytes(job, units[place - 1]) if place else 0


def boundary_shapes(job: Job) -> tuple[tuple[int, ...], ...]:
    """Of what each virtual stage but the last gives to the next, and gets its gradient back for."""
    return tuple(output_shape(job, units[-1]) for units in stages(job)[:-1])


@lru_cache(maxsize=256)
def boundary_bytes(job: Job) -> tuple[int, ...]:
    """Bytes of each of `boundary_shapes`: of one message, on one rank."""
    return tuple(prod(shape) * job.precision.compute for shape in boundary_shapes(job))


def pp_rank_of_stage(plan: Plan, stage: int) -> int:
    """The pipeline rank a virtual stage lives on, as the schedule places it."""
    return SCHEDULES[plan.schedule].placement(plan.pp, stage)


def stages(job: Job) -> tuple[tuple[str, ...], ...]:
    """The compute units of each virtual stage, first to last; `pp_rank_of_stage` says where each lives.

    Blocks are dealt out contiguously so that the dearest stage costs least, counting embedding and head.
    """
    count, units = job.plan.pp * job.plan.chunks, compute_units(job.model)
    blocks = [place for place, unit in enumerate(units) if kind_of(unit).block]
    sizes = job.plan.partition or _balanced(job.model, count)
    starts = [0, *(blocks[sum(sizes[:i])] for i in range(1, count)), len(units)]
    return tuple(units[a:b] for a, b in pairwise(starts))


@lru_cache(maxsize=256)
def _balanced(model: Model, count: int) -> tuple[int, ...]:
    """Blocks per stage with the least dearest stage; among equals the most even, then the earliest."""
    units = compute_units(model)
    costs = [forward_cost(model, unit) for unit in units]
    blocks = [place for place, unit in enumerate(units) if kind_of(unit).block]
    first, last = sum(costs[: blocks[0]]), sum(costs[blocks[-1] + 1 :])
    of_blocks = costs[blocks[0] : blocks[-1] + 1]
    if count == 1:
        return (len(blocks),)
    if len(set(of_blocks)) == 1:
        return _balanced_alike(of_blocks[0], len(blocks), count, first, last)
    of_blocks[0] += first
    of_blocks[-1] += last
    return _balanced_mixed(tuple(of_blocks), count)


def _balanced_alike(block: float, layers: int, count: int, first: float, head: float) -> tuple[int, ...]:
    """Where all blocks cost the same and what comes before them next to nothing.

    Then it is enough to try how many blocks the last stage gives up for the head.
    """
    best: tuple[float, int, tuple[int, ...]] | None = None
    for last in range(1, layers - count + 2):
        rest = layers - last
        sizes = (*(rest // (count - 1) + (s < rest % (count - 1)) for s in range(count - 1)), last)
        dearest = max(first + sizes[0] * block, *(n * block for n in sizes[1:-1]), last * block + head)
        candidate = (dearest, max(sizes) - min(sizes), sizes)
        best = min(best, candidate) if best else candidate
    assert best is not None
    return best[2]


def _balanced_mixed(costs: tuple[float, ...], count: int) -> tuple[int, ...]:
    """Where blocks differ: least[s][i] is the dearest of s stages that share out the first i blocks."""
    total = [0.0, *accumulate(costs)]
    least: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
    for stage in range(1, count + 1):
        ends = range(stage, len(costs) - (count - stage) + 1)
        least.append({i: min((max(least[-1][j][0], total[i] - total[j]), j) for j in least[-1] if j < i) for i in ends})
    edges = [len(costs)]
    for stage in range(count, 0, -1):
        edges.append(least[stage][edges[-1]][1])
    return tuple(b - a for a, b in pairwise(reversed(edges)))


def units_of_pp_rank(job: Job, pp_rank: int) -> tuple[str, ...]:
    """Every unit whose parameters live on pipeline rank `pp_rank`, in forward order, `tokens` first."""
    mine = [unit for s, units in enumerate(stages(job)) if pp_rank_of_stage(job.plan, s) == pp_rank for unit in units]
    wanted = dict.fromkeys(name for unit in mine for name in needs(job.model, unit))
    return tuple(sorted(wanted, key=lambda name: name != TOKENS))


def tied_pp_ranks(job: Job) -> tuple[int, ...]:
    """The pipeline ranks whose copies of one token matrix must stay equal, first stage's first; () if no two have."""
    plan = job.plan
    ends = (pp_rank_of_stage(plan, 0), pp_rank_of_stage(plan, plan.pp * plan.chunks - 1))
    return ends if job.model.tied and ends[0] != ends[1] else ()
