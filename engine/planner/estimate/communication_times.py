"""What communication costs on the mesh of a plan: by axis its slowest group, by pipeline hop its slowest pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.cluster.cluster import Cluster
from engine.cluster.collectives import GroupCost, group_cost, message_seconds
from engine.job.mesh import Mesh

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Places:
    """Where the ranks of a job of `world` ranks sit."""

    cluster: Cluster
    world: int

    @cached_property
    def node(self) -> Numbers:
        return np.array([self.cluster.node_of(rank) for rank in range(self.world)])

    @cached_property
    def alike(self) -> Numbers:
        """A number for each rank that is equal where links are equal; ranks at a slow link are like no other."""
        kinds: dict[object, int] = {}
        ends = {end for link in self.cluster.slow_links for end in (link.a, link.b)}
        slow_nodes = {end for link in self.cluster.slow_links if link.between == "nodes" for end in (link.a, link.b)}
        found = []
        for rank in range(self.world):
            special = rank in ends or int(self.node[rank]) in slow_nodes
            key = (
                rank if special else (id(self.cluster.inside_of(rank)), self.cluster.ranks_on_device(rank, self.world))
            )
            found.append(kinds.setdefault(key, len(kinds)))
        return np.array(found)

    def different(self, groups: Numbers) -> list[tuple[int, ...]]:
        """One of each way in which rows of ranks lie on the cluster."""
        nodes = self.node[groups]
        pattern = np.concatenate([nodes - nodes[:, :1], self.alike[groups]], axis=1)
        pattern = np.ascontiguousarray(pattern)
        as_bytes = pattern.view(f"V{pattern.dtype.itemsize * pattern.shape[1]}").ravel()
        _, first = np.unique(as_bytes, return_index=True)
        return [tuple(groups[i].tolist()) for i in first]


@dataclass(frozen=True, eq=False)
class MeshTimes:
    """The mesh of a plan on a cluster."""

    mesh: Mesh
    places: Places

    def costs(self, axis: str) -> tuple[GroupCost, ...]:
        """Of the groups of an axis; `tie` is the two ends of every pipeline."""
        if axis not in self._costs:
            grid = self.mesh.grid
            along = np.moveaxis(grid, self.mesh.place("pp" if axis == "tie" else axis), -1).reshape(
                -1, self._size(axis)
            )
            groups = along[:, [0, -1]] if axis == "tie" else along
            examples = self.places.different(np.sort(groups, axis=1))
            self._costs[axis] = tuple(group_cost(self.places.cluster, g, self.places.world) for g in examples)
        return self._costs[axis]

    @cached_property
    def _costs(self) -> dict[str, tuple[GroupCost, ...]]:
        return {}

    @cached_property
    def _known(self) -> dict[tuple[str, str, tuple[int, ...], bytes], Floats]:
        return {}  # many shapes ask for the same buckets

    def _size(self, axis: str) -> int:
        return self.mesh.degree("pp" if axis == "tie" else axis)

    def seconds(self, axis: str, op: str, nbytes: ArrayLike) -> Floats:
        """Of the slowest group of an axis."""
        if self._size(axis) == 1:
            return np.zeros(np.shape(nbytes))
        asked = np.asarray(nbytes)
        key = (axis, op, asked.shape, asked.tobytes())
        if key not in self._known:
            each = [cost.seconds(op, asked) for cost in self.costs(axis)]
            self._known[key] = np.asarray(np.maximum.reduce(each))
        return self._known[key]

    @cached_property
    def hops(self) -> list[Callable[[ArrayLike], Floats]]:
        """For each pipeline rank, the seconds of a message from it to the next one; the last one's go to the first."""
        grid, p = self.mesh.grid, self.mesh.degree("pp")
        return [self._hop(grid[:, :, z].ravel(), grid[:, :, (z + 1) % p].ravel()) for z in range(p)]

    def _hop(self, source: Numbers, to: Numbers) -> Callable[[ArrayLike], Floats]:
        pairs = self.places.different(np.stack([source, to], axis=1))
        return lambda nbytes: np.maximum.reduce(
            [message_seconds(self.places.cluster, a, b, nbytes, self.places.world) for a, b in pairs]
        )
