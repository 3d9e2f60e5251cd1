"""Where the ranks of a plan sit on a cluster, and what computes and carries there.

Replicas of a pipeline that sit alike are one column: what is told apart is [columns, pipeline ranks]. On equal nodes
there is one column as a rule, with a slow rank or two sorts of device there are two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.cluster.cluster import Cluster, Device
from engine.cluster.collectives import GroupCost, group_cost, message_seconds
from engine.job.mesh import Mesh

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Speed = tuple[Device, float]
"""A device and the factor it runs at."""


@dataclass(frozen=True, eq=False)
class Places:
    """Where the ranks of a job of `world` ranks sit."""

    cluster: Cluster
    world: int
    costs: list[GroupCost] = field(default_factory=list)
    """The different costs that groups have been found to have; groups are told apart by their numbers."""
    _number: dict[object, int] = field(default_factory=dict)

    @cached_property
    def node(self) -> Numbers:
        return np.array([self.cluster.node_of(rank) for rank in range(self.world)])

    @cached_property
    def speeds(self) -> tuple[tuple[Speed, ...], Numbers]:
        """(the different devices and speeds, the number of each rank's)."""
        found: dict[tuple[int, float], tuple[int, Speed]] = {}
        which = []
        for rank in range(self.world):
            device, factor = self.cluster.device_of(rank, self.world), self.cluster.speed_of(rank, self.world)
            which.append(found.setdefault((id(device), factor), (len(found), (device, factor)))[0])
        return tuple(speed for _, speed in found.values()), np.array(which)

    @cached_property
    def alike(self) -> Numbers:
        """A number for each rank that is equal where links are equal; ranks at a slow link are like no other."""
        kinds: dict[object, int] = {}
        links = self.cluster.slow_links
        slow = {end for link in links if link.between == "ranks" for end in (link.a, link.b)}
        slow_nodes = {end for link in links if link.between == "nodes" for end in (link.a, link.b)}
        found = []
        for rank in range(self.world):
            key: object = (id(self.cluster.inside_of(rank)), self.cluster.ranks_on_device(rank, self.world))
            if rank in slow or int(self.node[rank]) in slow_nodes:
                key = rank
            found.append(kinds.setdefault(key, len(kinds)))
        return np.array(found)

    def ways(self, groups: Numbers) -> tuple[Numbers, Numbers]:
        """(a number for the way in which each row of ranks lies on the cluster, an example row of each)."""
        nodes = self.node[groups]
        return numbered(np.concatenate([nodes - nodes[:, :1], self.alike[groups]], axis=1))

    def numbers_of(self, groups: Numbers) -> Numbers:
        """For each row of ranks the place in `costs` of what its collectives cost."""
        way, examples = self.ways(np.sort(groups, axis=1))
        return np.array([self._cost(tuple(groups[i].tolist())) for i in examples])[way]

    def _cost(self, ranks: tuple[int, ...]) -> int:
        cost = group_cost(self.cluster, tuple(sorted(ranks)), self.world)
        number = self._number.setdefault(tuple(cost.lines.items()), len(self.costs))
        if number == len(self.costs):
            self.costs.append(cost)
        return number


def numbered(rows: Numbers) -> tuple[Numbers, Numbers]:
    """(equal numbers for equal rows, the place of one row of each number)."""
    rows = np.ascontiguousarray(rows)
    as_bytes = rows.view(f"V{rows.dtype.itemsize * rows.shape[1]}").ravel()
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return np.asarray(inverse, np.int64), np.asarray(first, np.int64)


@dataclass(frozen=True, eq=False)
class MeshPlaces:
    """The mesh of a plan on a cluster.

    tensor, devices: [columns, pipeline ranks], the number of a tensor group's cost and of what its ranks compute on.
    hops: [2, columns, pipeline ranks], of a message to the next pipeline rank the seconds at no size and per byte; the
    last one's go to the first.
    """

    mesh: Mesh
    places: Places

    @cached_property
    def _columns(self) -> tuple[Numbers, Numbers, Floats]:
        assert self.mesh.axes == ("dp", "tp", "pp"), "what a search covers, in the order of the grid's dims"
        grid = self.mesh.grid
        dp, tp, pp = grid.shape
        groups = grid.transpose(0, 2, 1).reshape(-1, tp)
        tensor = self.places.numbers_of(groups).reshape(dp, pp)
        devices = self._device_numbers(groups).reshape(dp, pp)
        hops = self._hops(grid)
        parts = [tensor, devices, np.unique(hops, return_inverse=True)[1].reshape(2 * dp, pp)]
        rows = np.concatenate([*parts[:2], parts[2][:dp], parts[2][dp:]], axis=1)
        _, first = numbered(rows)
        return tensor[first], devices[first], hops[:, first]

    @property
    def tensor(self) -> Numbers:
        return self._columns[0]

    @property
    def devices(self) -> Numbers:
        return self._columns[1]

    @property
    def hops(self) -> Floats:
        return self._columns[2]

    def _device_numbers(self, groups: Numbers) -> Numbers:
        """For each tensor group a number with a bit for each of `Places.speeds` that is in it."""
        _, which = self.places.speeds
        return np.asarray(np.bitwise_or.reduce(1 << which[groups], axis=1))

    def _hops(self, grid: Numbers) -> Floats:
        """[2, dp, pp]: of the slowest pair of a tensor group's ranks."""
        dp, tp, pp = grid.shape
        if pp == 1:
            return np.zeros((2, dp, 1))
        pairs = np.stack([grid, np.roll(grid, -1, axis=2)], axis=-1).reshape(-1, 2)
        way, examples = self.places.ways(pairs)
        cluster, world = self.places.cluster, self.places.world
        at = (0, 1 << 40)
        ends = [(int(pairs[i, 0]), int(pairs[i, 1])) for i in examples]
        times = np.array([message_seconds(cluster, source, to, at, world) for source, to in ends])
        lines = np.stack([times[:, 0], (times[:, 1] - times[:, 0]) / at[1]])
        return np.asarray(lines[:, way].reshape(2, dp, tp, pp).max(axis=2))

    def slowest(self, axis: str, op: str, nbytes: ArrayLike, pp_rank: int | None = None) -> Floats:
        """Seconds of the slowest group of an axis among those of a pipeline rank or all; `tie` is the two ends of every
        pipeline."""
        numbers = self._numbers(axis)
        chosen = np.unique(numbers if pp_rank is None or axis in ("pp", "tie") else numbers[:, pp_rank])
        return self.seconds(tuple(chosen.tolist()), op, nbytes)

    def fastest(self, axis: str, op: str, nbytes: ArrayLike) -> Floats:
        """Seconds of the fastest group of an axis."""
        each = [self.places.costs[number].seconds(op, nbytes) for number in np.unique(self._numbers(axis)).tolist()]
        return np.asarray(np.minimum.reduce(each))

    def seconds(self, costs: tuple[int, ...], op: str, nbytes: ArrayLike) -> Floats:
        """Of the slowest of the groups with these numbers."""
        each = [self.places.costs[n].seconds(op, nbytes) for n in costs]
        return np.asarray(np.maximum.reduce(each))

    def _numbers(self, axis: str) -> Numbers:
        """[groups, pipeline ranks], for `pp` and `tie` [groups]."""
        if axis not in self._known:
            grid = self.mesh.grid
            if axis == "dp":
                found = self.places.numbers_of(grid.transpose(1, 2, 0).reshape(-1, self.mesh.degree("dp")))
                self._known[axis] = found.reshape(self.mesh.degree("tp"), self.mesh.degree("pp"))
            elif axis == "tp":
                self._known[axis] = self.tensor
            else:
                along = grid.reshape(-1, self.mesh.degree("pp"))
                self._known[axis] = self.places.numbers_of(along[:, [0, -1]] if axis == "tie" else along)
        return self._known[axis]

    @cached_property
    def _known(self) -> dict[str, Numbers]:
        return {}
