"""Which ranks behave alike on a cluster? One of each class is enough for a replay of them all.

Colour refinement (Weisfeiler and Leman 1968; Paige and Tarjan 1987 for its use on partitions): ranks begin with a
colour for what they are and what their own links cost, and are told apart as long as two of one colour have
differently coloured partners. Ranks that keep one colour do the same at the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from engine.cluster.cluster import Cluster
from engine.cluster.collectives import group_cost, message_seconds
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.units import pp_rank_of_stage, tied_pp_ranks

Numbers = NDArray[np.int64]


def representatives(job: Job, cluster: Cluster, distinct: Callable[[int], Hashable] | None = None) -> tuple[int, ...]:
    """For every rank the smallest rank of its class.

    distinct: anything else that tells ranks apart, for example work that only one of them does.
    Raises `ValueError` if the cluster is too small.
    """
    cluster.check_size(job.world_size)
    mesh = mesh_of(job)
    groups = {axis: np.array(mesh.groups(axis)) for axis in mesh.axes}
    colour = _first_colours(job, cluster, groups, distinct)
    while True:
        partners = [_spread(_numbered_rows(np.sort(colour[ranks], axis=1)), ranks) for ranks in groups.values()]
        finer = _numbered_rows(np.stack([colour, *partners], axis=1))
        if finer.max() == colour.max():
            break
        colour = finer
    _, smallest, inverse = np.unique(colour, return_index=True, return_inverse=True)
    return tuple(smallest[inverse].tolist())


def _first_colours(
    job: Job, cluster: Cluster, groups: dict[str, Numbers], distinct: Callable[[int], Hashable] | None
) -> Numbers:
    """What a rank is: its place in the pipeline, its device and speed, the costs of its groups and of its messages."""
    world = job.world_size
    place = np.empty(world, np.int64)
    place[groups["pp"]] = np.arange(job.plan.pp)
    speed = np.array([cluster.speed_of(rank, world) for rank in range(world)])
    parts = [place, _numbered(speed.tolist()), _numbered(id(cluster.device_of(rank, world)) for rank in range(world))]
    if distinct is not None:
        parts.append(_numbered(map(distinct, range(world))))
    layout = _Layout(cluster, world)
    parts += [_spread(layout.costs(ranks), ranks) for ranks in groups.values()]
    pipelines = groups["pp"]
    for ends in _hops(job):
        cost = layout.links(pipelines[:, ends[0]], pipelines[:, ends[1]])
        parts.append(_at(pipelines[:, ends], np.repeat(cost[:, None] + 1, 2, axis=1), world))
    if tie := tied_pp_ranks(job):
        parts.append(_spread(layout.costs(pipelines[:, tie]), pipelines))
    return _numbered_rows(np.stack(parts, axis=1))


def _hops(job: Job) -> list[tuple[int, int]]:
    """The pipeline ranks between which messages go, from stage to stage."""
    plan = job.plan
    home = [pp_rank_of_stage(plan, s) for s in range(plan.pp * plan.chunks)]
    return list(dict.fromkeys((a, b) for a, b in pairwise(home) if a != b))


class _Layout:
    """Tells groups of ranks apart by what their communication costs. Asks the cluster once for each way to lie on it.

    Groups whose members are spread over equal nodes in equal numbers cost the same, unless a slow link joins two.
    """

    def __init__(self, cluster: Cluster, world: int) -> None:
        self.cluster, self.world = cluster, world
        self.node = np.array([cluster.node_of(rank) for rank in range(world)])
        kinds = [(id(cluster.inside_of(rank)), cluster.ranks_on_device(rank, world)) for rank in range(world)]
        self.kind = _numbered(kinds)
        self.slow = np.zeros(world, bool)
        for link in cluster.slow_links:
            where = np.arange(world) if link.between == "ranks" else self.node
            self.slow |= (where == link.a) | (where == link.b)

    def costs(self, groups: Numbers) -> Numbers:
        """A number for each row of ranks; equal only where every collective costs the same."""
        return self._told_apart(groups, lambda ranks: tuple(group_cost(self.cluster, ranks, self.world).lines.items()))

    def links(self, source: Numbers, to: Numbers) -> Numbers:
        """A number for each pair of ranks, equal only where messages between them cost the same."""
        pairs = np.stack([source.ravel(), to.ravel()], axis=1)
        sizes = (0, 1 << 40)  # a message costs a + b·bytes

        def cost(ranks: tuple[int, ...]) -> Hashable:
            return tuple(message_seconds(self.cluster, ranks[0], ranks[1], sizes, self.world).tolist())

        return self._told_apart(pairs, cost).reshape(source.shape)

    def _told_apart(self, groups: Numbers, cost: Callable[[tuple[int, ...]], Hashable]) -> Numbers:
        ordered = np.sort(groups, axis=1)
        nodes = self.node[ordered]
        members = np.where(self.slow[ordered].sum(axis=1) > 1, np.arange(1, len(groups) + 1), 0)
        alike = np.column_stack([nodes - nodes[:, :1], self.kind[ordered], members])
        way = _numbered_rows(alike)
        _, example = np.unique(way, return_index=True)
        costs = _numbered(cost(tuple(groups[i].tolist())) for i in example)
        return costs[way]


def _spread(numbers: Numbers, groups: Numbers) -> Numbers:
    """The number of each group, for each rank."""
    return _at(groups, np.repeat(numbers[:, None], groups.shape[1], axis=1))


def _at(ranks: Numbers, numbers: Numbers, world: int | None = None) -> Numbers:
    """Numbers in the order of ranks; 0 for those of `world` that are not named."""
    out = np.zeros(world or ranks.size, np.int64)
    out[ranks.ravel()] = numbers.ravel()
    return out


def _numbered(values: Iterable[Hashable]) -> Numbers:
    """Equal values get equal numbers, from 0 in the order in which they appear."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(value, len(known)) for value in values], np.int64)


def _numbered_rows(rows: Numbers) -> Numbers:
    """Equal rows get equal numbers, from 0 on."""
    rows = np.ascontiguousarray(rows)
    as_bytes = rows.view(f"V{rows.dtype.itemsize * rows.shape[1]}").ravel()
    return np.asarray(np.unique(as_bytes, return_inverse=True)[1], np.int64)
