"""What collectives and messages cost on a cluster: how a group lies on it, and the cheapest algorithm for the size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.cluster.algorithms import Line, Tiers, lines
from engine.cluster.cluster import Cluster, Link
from engine.cluster.operations import OPERATIONS
from engine.job.errors import Unknown

Floats = NDArray[np.float64]
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


@dataclass(frozen=True)
class Choice:
    """The algorithm taken for one operation, its seconds, those of the others, and why, in a sentence."""

    algorithm: str
    seconds: float
    alternatives: dict[str, float]
    why: str


@dataclass(frozen=True)
class GroupCost:
    """What each operation of one group of ranks costs. `lines`: the algorithms there are, by operation."""

    size: int
    lines: dict[str, tuple[Line, ...]]

    def seconds(self, op: str, nbytes: ArrayLike) -> Floats:
        """Seconds from the arrival of the last rank to the end, by the cheapest algorithm for each size.

        nbytes: the size of the full tensor, any shape, which the result has too. A group of one takes no time.
        """
        times = [line.seconds(nbytes) for line in self._of(op)]
        return np.minimum.reduce(times) if times else np.zeros(np.shape(nbytes))

    def _of(self, op: str) -> tuple[Line, ...]:
        if op not in self.lines:
            raise Unknown("collective", op, self.lines)
        return self.lines[op]

    def explain(self, op: str, nbytes: int) -> Choice:
        """The algorithm taken for a full tensor of `nbytes`, and why."""
        times = {line.algorithm: float(line.seconds(nbytes)) for line in self._of(op)}
        if not times:
            return Choice("none", 0.0, {}, "none: a group of one rank has nobody to talk with")
        best = min(self.lines[op], key=lambda line: times[line.algorithm])
        took = times.pop(best.algorithm)
        others = [f"a {_NAMES[name]} would take {time / took:.3g}× as long" for name, time in times.items()]
        return Choice(best.algorithm, took, times, f"{best.algorithm}: {'; '.join([best.reason, *others])}")


_NAMES = {"ring": "flat ring", "tree": "double tree", "hierarchical": "hierarchical one"}


@lru_cache(maxsize=4096)
def group_cost(cluster: Cluster, ranks: tuple[int, ...], world_size: int) -> GroupCost:
    """The costs of the group `ranks` in a job of `world_size` ranks. Raises `ValueError` if the cluster is smaller.

    Slow links count where the group uses them: algorithms go around the members in the order of ranks, and around the
    nodes in their order, so only links between neighbours matter, except to an all-to-all. A slow rank computes
    slowly and arrives late, which is not the collective's own time.
    """
    if len(ranks) == 1:
        return GroupCost(1, dict.fromkeys(COLLECTIVES, ()))
    neighbours, everybody = (_tiers(cluster, ranks, world_size, all_pairs) for all_pairs in (False, True))
    costs = {
        op: tuple(lines(op, everybody if op == "all_to_all" else neighbours, cluster.backend)) for op in COLLECTIVES
    }
    return GroupCost(len(ranks), costs)


def message_seconds(cluster: Cluster, source: int, to: int, nbytes: ArrayLike, world_size: int = 0) -> Floats:
    """Seconds from the moment both ranks are ready until `nbytes` have arrived: launch + latency + S / bandwidth.

    world_size matters only on a shared cluster, where ranks that take turns also take turns at copying.
    """
    tiers = _tiers(cluster, (source, to), max(world_size, source + 1, to + 1), True)
    link = tiers.across or tiers.inside
    assert link is not None
    return np.asarray(link.launch_s + link.latency_s + np.asarray(nbytes, dtype=np.float64) / link.bandwidth)


def full_bytes(op: str, n: int, logical: ArrayLike) -> NDArray[np.int64]:
    """The size of the full tensor, from what each of `n` ranks sends: the inverse of
    `engine.communication.collective_bytes.logical_bytes`.

    That one rounds down where n does not divide the bytes, so this gives the least size that leads to `logical`.
    """
    sent = np.asarray(logical, dtype=np.int64)
    rounds = OPERATIONS[op].rounds
    return np.asarray(-(-sent * n // (rounds * (n - 1))), dtype=np.int64) if rounds else sent


def _tiers(cluster: Cluster, ranks: tuple[int, ...], world_size: int, all_pairs: bool) -> Tiers:
    """How the group lies on the cluster. all_pairs: whether every slow link counts, or only those of neighbours."""
    cluster.check_size(world_size)
    nodes: dict[int, list[int]] = {}
    for rank in sorted(ranks):
        nodes.setdefault(cluster.node_of(rank), []).append(rank)
    inside_factor, across_factor = _slowest(cluster, nodes, all_pairs)
    turns = max(cluster.ranks_on_device(rank, world_size) for rank in ranks)
    links = [cluster.inside_of(members[0]) for members in nodes.values() if len(members) > 1]
    return Tiers(
        sizes=tuple(len(members) for members in nodes.values()),
        inside=_slowed(links, inside_factor, turns) if links else None,
        across=_slowed([cluster.across], across_factor, turns) if len(nodes) > 1 else None,
    )


def _slowed(links: list[Link], factor: float, turns: int) -> Link:
    """The worst of the links, slowed down. Ranks that take turns on a device also take turns at sending."""
    return Link(
        launch_s=max(link.launch_s for link in links) * turns,
        latency_s=max(link.latency_s for link in links) * turns,
        bandwidth=min(link.bandwidth for link in links) * factor / turns,
    )


def _slowest(cluster: Cluster, nodes: dict[int, list[int]], all_pairs: bool) -> tuple[float, float]:
    """The factors of the slowest link that the group uses inside a node, and across."""
    inside, across = [1.0], [1.0]
    home = {rank: node for node, members in nodes.items() for rank in members}
    for link in cluster.slow_links:
        a, b = (link.a, link.b) if link.between == "nodes" else (home.get(link.a), home.get(link.b))
        if a not in nodes or b not in nodes:
            continue
        if a != b:
            if all_pairs or _adjacent(list(nodes), a, b):
                across.append(link.factor)
        elif all_pairs or _adjacent(nodes[a], link.a, link.b):
            inside.append(link.factor)
    return min(inside), min(across)


def _adjacent(around: list[int], a: int, b: int) -> bool:
    """Whether a and b are neighbours on the ring `around`."""
    apart = abs(around.index(a) - around.index(b))
    return apart in (1, len(around) - 1)
