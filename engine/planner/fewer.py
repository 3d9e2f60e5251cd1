"""Plans that leave GPUs idle. Some are faster than all that use every GPU: 60 replicas of a batch that 64 do not divide
beat 32 pairs. They are looked for where the work of the busiest rank alone does not yet rule them out.
"""

from __future__ import annotations

from engine.job.nearest import divisors
from engine.planner.estimate.estimate import Estimator
from engine.planner.plans import Legal, Shape, pipelines, variants

MOST_GRIDS = 16
"""Grids of ranks that are looked at; those with the least work for each rank come first."""


def fewer_ranks(estimator: Estimator, gpus: int, ranks: int, seconds: float) -> dict[int, Legal]:
    """Numbers of ranks below `ranks` → their plans that might take less than `seconds`, the most ranks first.

    estimator: of the plans that use `ranks` of the GPUs, whose tensor degrees these plans have too.
    """
    space = estimator.space
    batch, layers = space.job.training.batch, space.job.model.layers
    found: list[tuple[float, int, int, int]] = []
    for tp in estimator.units.tps:
        block = estimator.fastest_block(tp)
        for dp in space.among("dp", [d for d in divisors(batch) if d * tp <= gpus]):
            for pp in space.among("pp", range(1, min(layers, gpus // (dp * tp)) + 1)):
                least = batch // dp * -(-layers // pp) * block
                if dp * tp * pp < ranks and least < seconds:
                    found.append((least, dp, tp, pp))
    out: dict[int, Legal] = {}
    for _, dp, tp, pp in sorted(found)[:MOST_GRIDS]:
        for way in pipelines(space, pp, batch // dp):
            shape = Shape(dp, tp, pp, *way)
            plans = variants(space, shape)
            if len(plans):
                out.setdefault(shape.ranks, []).append((shape, plans))
    return dict(sorted(out.items(), reverse=True))
