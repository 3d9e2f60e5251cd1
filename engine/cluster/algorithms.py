"""The algorithms of collectives, each as one line: seconds = α + β·S (the α–β model of Hockney 1994).

S is the size of the full tensor in bytes. n ranks on k nodes, g of them on each. Sources, by the names used below:

- Thakur: Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in MPICH", section 4.
- Sanders: Sanders, Speck, Träff 2009, "Two-tree algorithms for full bandwidth broadcast, reduction and scan".
- NCCL: its own cost model, nccl src/graph/tuning.cc, which says how many hops stay inside a node and how many do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.cluster.cluster import Link


@dataclass(frozen=True)
class Line:
    """One algorithm for one operation of a group. `reason` says in words what it does to the bytes."""

    algorithm: str
    alpha: float
    beta: float
    reason: str

    def seconds(self, nbytes: ArrayLike) -> NDArray[np.float64]:
        """For messages or tensors of `nbytes` bytes, of any shape: alpha + beta × bytes, in that shape."""
        return np.asarray(self.alpha + self.beta * np.asarray(nbytes, dtype=np.float64))


@dataclass(frozen=True)
class Tiers:
    """A group as an algorithm sees it.

    sizes: members in each of its nodes. inside: the slowest link within a node, None where no node has two members.
    across: the slowest between its nodes, one member's share, None where there is one node.
    """

    sizes: tuple[int, ...]
    inside: Link | None
    across: Link | None

    @property
    def ranks(self) -> int:
        return sum(self.sizes)

    @property
    def equal(self) -> bool:
        """Whether every node has as many members."""
        return len(set(self.sizes)) == 1

    @property
    def launch_s(self) -> float:
        """Seconds to start a collective, by the link between nodes where it has more than one."""
        link = self.across or self.inside
        assert link is not None
        return link.launch_s

    @property
    def bandwidth(self) -> float:
        """Of a ring through all members: NCCL runs one through the adapter of each member of a node, so a node with g
        members sends g shares, but never more than its devices can pass on."""
        shares = [self.across.bandwidth * min(self.sizes)] if self.across else []
        return min(shares + ([self.inside.bandwidth] if self.inside else []))

    def latency(self, inside_hops: int, across_hops: int) -> float:
        """Seconds of so many hops, one after the other."""
        inner = inside_hops * self.inside.latency_s if self.inside else 0.0
        return inner + (across_hops * self.across.latency_s if self.across else 0.0)

    def within(self) -> Tiers:
        """The members of one node, as a group of their own."""
        return Tiers((max(self.sizes),), self.inside, None)

    def between(self) -> Tiers:
        """One member of every node, as a group of their own."""
        return Tiers((1,) * len(self.sizes), None, self.across)


def ring(op: str, tiers: Tiers) -> Line:
    """All-reduce: 2(n−1) hops, 2(n−1)/n·S; reduce-scatter and all-gather half of it (Thakur 4.1, 4.4, 4.5).

    Of the hops of one round, k−1 lead to another node (NCCL).
    """
    n, k, rounds = tiers.ranks, len(tiers.sizes), 2 if op == "all_reduce" else 1
    alpha = tiers.launch_s + rounds * tiers.latency(n - k, k - 1)
    sent = f"{rounds * (n - 1)}/{n} of the bytes in {rounds * (n - 1)} hops"
    return Line("ring", alpha, rounds * (n - 1) / n / tiers.bandwidth, f"every rank sends {sent}")


def tree(tiers: Tiers) -> Line:
    """All-reduce on a double binary tree over the nodes and a chain inside each: 2((g−1) + ⌈log2 k⌉) hops (NCCL).

    A rank is inside one tree and a leaf of the other, so it sends S/2 up each and S/2 to two children: 2S (Sanders).
    """
    depth = math.ceil(math.log2(len(tiers.sizes)))
    alpha = tiers.launch_s + 2 * tiers.latency(max(tiers.sizes) - 1, depth)
    reason = f"the trees over {len(tiers.sizes)} nodes are only {depth} deep, so few hops follow one another"
    return Line("tree", alpha, 2 / tiers.bandwidth, reason)


def hierarchical(tiers: Tiers) -> Line:
    """All-reduce in three operations: reduce-scatter inside each node, all-reduce of S/g across, all-gather inside."""
    g, inner, outer = tiers.sizes[0], tiers.within(), tiers.between()
    scatter, reduce, gather = ring("reduce_scatter", inner), ring("all_reduce", outer), ring("all_gather", inner)
    alpha = scatter.alpha + reduce.alpha + gather.alpha
    beta = scatter.beta + reduce.beta / g + gather.beta
    reason = f"the group spans {len(tiers.sizes)} nodes, so only 1/{g} of the bytes of each rank cross them"
    return Line("hierarchical", alpha, beta, reason)


def pairwise(tiers: Tiers) -> Line:
    """All-to-all: n−1 exchanges of S/n with one rank after the other (Thakur 4.2).

    Both kinds of link work at the same time, so the slower kind decides.
    """
    n, most, least = tiers.ranks, max(tiers.sizes), min(tiers.sizes)
    inner = (most - 1) / n / tiers.inside.bandwidth if tiers.inside else 0.0
    outer = (n - least) / n / tiers.across.bandwidth if tiers.across else 0.0
    alpha = tiers.launch_s + tiers.latency(most - 1, n - most)
    return Line("pairwise", alpha, max(inner, outer), f"every rank sends 1/{n} of the bytes to each of {n - 1} others")


def lines(op: str, tiers: Tiers, backend: str) -> Iterator[Line]:
    """The algorithms that `backend` has for `op`. gloo has rings, and makes an all-reduce of a reduce-scatter."""
    if op == "all_to_all":
        yield pairwise(tiers)
        return
    yield ring("all_reduce" if backend == "gloo" and op == "reduce_scatter" else op, tiers)
    if op == "all_reduce" and backend == "nccl" and len(tiers.sizes) > 1:
        yield tree(tiers)
        if tiers.equal and tiers.inside:
            yield hierarchical(tiers)
