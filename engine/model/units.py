"""Units: what is gathered, reduced and recomputed as one, and how they are dealt out to stages and buckets.

The units of a GPT are `embedding`, `block0` … `block{L-1}` and `head`. A tied model has one more, `tokens`: the
token matrix that both ends use. It computes nothing by itself; embedding and head need it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from engine.job.job import Job, Model, Plan
from engine.job.schedules import SCHEDULES

TOKENS = "tokens"


def block_names(model: Model) -> tuple[str, ...]:
    return tuple(f"block{i}" for i in range(model.layers))


def compute_units(model: Model) -> tuple[str, ...]:
    """Units in the order of the forward pass."""
    return ("embedding", *block_names(model), "head")


def needs(model: Model, unit: str) -> tuple[str, ...]:
    """The units whose parameters a compute unit uses."""
    return (TOKENS, unit) if model.tied and unit in ("embedding", "head") else (unit,)


def recomputes(job: Job, unit: str) -> bool:
    """Whether backward runs the unit's forward again, of which nothing but the input is kept."""
    return job.plan.recompute == "full" and unit.startswith("block")


def forward_cost(model: Model, unit: str) -> float:
    """Forward FLOPs of a unit for one token; what the stage partition balances (backward costs twice as much)."""
    h, s = model.hidden, model.seq
    if unit == "embedding":
        return 0.0
    return 2.0 * h * model.vocab if unit == "head" else 24.0 * h * h + 4.0 * s * h


def stage_lane(plan: Plan, stage: int) -> int:
    """The pipeline rank a virtual stage lives on, as the schedule places it."""
    return SCHEDULES[plan.schedule].placement(plan.pp, stage)


def stages(job: Job) -> tuple[tuple[str, ...], ...]:
    """The compute units of each virtual stage, first to last; `stage_lane` says where each lives.

    Blocks are dealt out contiguously so that the dearest stage costs least, counting embedding and head.
    """
    count, blocks = job.plan.pp * job.plan.chunks, block_names(job.model)
    sizes = job.plan.partition or _balanced(job.model, count)
    edges = [sum(sizes[:i]) for i in range(count + 1)]
    dealt = [list(blocks[a:b]) for a, b in pairwise(edges)]
    dealt[0].insert(0, "embedding")
    dealt[-1].append("head")
    return tuple(map(tuple, dealt))


@lru_cache(maxsize=256)
def _balanced(model: Model, count: int) -> tuple[int, ...]:
    """Blocks per stage with the least dearest stage; among equals the most even, then the earliest.

    The embedding costs next to nothing, so it is enough to try how many blocks the last stage gives up for the head.
    """
    block, head = forward_cost(model, "block0"), forward_cost(model, "head")
    embedding = forward_cost(model, "embedding")
    best: tuple[float, int, tuple[int, ...]] | None = None
    if count == 1:
        return (model.layers,)
    for last in range(1, model.layers - count + 2):
        rest = model.layers - last
        sizes = (*(rest // (count - 1) + (s < rest % (count - 1)) for s in range(count - 1)), last)
        dearest = max(embedding + sizes[0] * block, *(n * block for n in sizes[1:-1]), last * block + head)
        candidate = (dearest, max(sizes) - min(sizes), sizes)
        best = min(best, candidate) if best else candidate
    assert best is not None
    return best[2]


def lane_units(job: Job, lane: int) -> tuple[str, ...]:
    """Every unit whose parameters live on pipeline rank `lane`, in forward order, `tokens` first."""
    mine = [unit for s, units in enumerate(stages(job)) if stage_lane(job.plan, s) == lane for unit in units]
    wanted = dict.fromkeys(name for unit in mine for name in needs(job.model, unit))
    return tuple(sorted(wanted, key=lambda name: name != TOKENS))


def token_lanes(job: Job) -> tuple[int, ...]:
    """The pipeline ranks whose copies of one token matrix must stay equal, first stage's first; () if no two have."""
    plan = job.plan
    ends = (stage_lane(plan, 0), stage_lane(plan, plan.pp * plan.chunks - 1))
    return ends if job.model.tied and ends[0] != ends[1] else ()
