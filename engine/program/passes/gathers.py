"""ZeRO-3: parameters live in shards and are gathered for as long as a unit computes (Rajbhandari et al. 2020, 5.3)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from engine.model.buckets import Bucket
from engine.program.kinds import Kind
from engine.program.program import Action

Needs = Callable[[str], Sequence[str]]


def gather_around_use(
    lane: Sequence[Action], buckets: Sequence[Bucket], needs: Needs, prefetch: int, keep: bool
) -> list[Action]:
    """Adds GATHER before and RELEASE after each use of a unit's parameters.

    prefetch: how many computations ahead a gather starts, but never while the same parameters are still in use.
    keep: one gather at the first use in the step, one release after the last.
    The weight part of a backward uses no parameters.
    """
    along = {bucket.name: bucket.shard_axis for bucket in buckets}
    computes = [i for i, a in enumerate(lane) if a.kind.computes]
    uses: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for n, i in enumerate(computes):
        for name in needs(lane[i].unit) if lane[i].kind.uses_parameters else ():
            spans = uses[name]
            again = n > 0 and lane[computes[n - 1]].kind is Kind.RECOMPUTE  # and the backward that follows are one use
            if spans and (keep or again):
                spans[-1] = (spans[-1][0], n)
            else:
                spans.append((n, n))
    before: dict[int, list[Action]] = defaultdict(list)
    after: dict[int, list[Action]] = defaultdict(list)
    for name, spans in uses.items():
        free = 0
        for first, last in spans:
            start = max(first - prefetch, free)
            before[computes[start]].append(Action(Kind.GATHER, name, axis=along[name], op="all_gather"))
            after[computes[last]].append(Action(Kind.RELEASE, name))
            free = last + 1
    return [new for i, action in enumerate(lane) for new in (*before[i], action, *after[i])]
