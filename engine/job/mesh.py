"""The mesh: every rank has a coordinate on each axis of `engine.job.axes.AXES`.

The order of the axes decides which ranks are neighbours. Megatron's default, kept here, is tensor fastest,
then data, then pipeline, so that the busiest axis sits on the closest devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from engine.job.axes import AXES, dividing
from engine.job.errors import Unknown
from engine.job.job import Job


class Coordinate(Mapping[str, int]):
    """Where a rank sits: axis → place along it, as `at["dp"]` or `at.dp`. x, y, z of pictures are dp, tp, pp."""

    def __init__(self, **places: int) -> None:
        self._places = places

    def __getitem__(self, axis: str) -> int:
        """0 on an axis along which there is one rank. Raises `Unknown` for one that is not in `AXES`."""
        return self._places.get(AXES[axis].name, 0)

    def __getattr__(self, axis: str) -> int:
        if axis.startswith("_") or axis not in self._places:
            raise AttributeError(axis)
        return self._places[axis]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __str__(self) -> str:
        return ", ".join(f"{AXES[axis].word} {place}" for axis, place in self._places.items())

    __repr__ = __str__

    def is_first(self, axes: Iterable[str]) -> bool:
        """Whether it is the first place along each of these axes. Raises `Unknown` for an axis not in `AXES`."""
        return all(self[axis] == 0 for axis in axes)

    @property
    def by_stage(self) -> tuple[int, ...]:
        """Its places, that in the pipeline first: the order in which pictures list ranks."""
        return (self["pp"], *(place for axis, place in self._places.items() if axis != "pp"))


class Mesh:
    """A grid of ranks with a dim for each axis: `Mesh(dp=2, tp=2)`.

    degrees: of the engine's axes, and of those others along which there is more than one rank. order: the axes,
    fastest-varying first; those it leaves out follow in the order of `AXES`.
    """

    def __init__(self, order: tuple[str, ...] = ("tp", "dp", "pp"), **degrees: int) -> None:
        """Raises `Unknown` for an axis that is not in `AXES`."""
        for axis in (*degrees, *order):
            AXES[axis]
        wanted = {
            axis.name: degrees.get(axis.name, 1) for axis in AXES if axis.built_in or degrees.get(axis.name, 1) > 1
        }
        self.degrees: Mapping[str, int] = wanted
        named = [axis for axis in order if axis in wanted]
        self.order = (*named, *(axis for axis in wanted if axis not in named))
        assert len(set(self.order)) == len(self.order), order

    @property
    def axes(self) -> tuple[str, ...]:
        """In the order of coordinates."""
        return tuple(self.degrees)

    @cached_property
    def size(self) -> int:
        return prod(self.degrees.values())

    def degree(self, axis: str) -> int:
        """Raises `Unknown` for an axis that is not in `AXES`."""
        return self.degrees.get(AXES[axis].name, 1)

    def place(self, axis: str) -> int:
        """Which dim of `grid` an axis is. Raises `Unknown` for one that the mesh has not."""
        if axis not in self.degrees:
            raise Unknown("axis", axis, self.degrees)
        return self.axes.index(axis)

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Ranks as an array with a dim for each of `axes`: [dp, tp, pp]."""
        slowest_first = self.order[::-1]
        ranks = np.arange(self.size).reshape([self.degrees[axis] for axis in slowest_first])
        return ranks.transpose([slowest_first.index(axis) for axis in self.axes])

    def rank(self, **at: int) -> int:
        """The rank at a coordinate: `rank(pp=1)`; 0 on axes that are not named. Raises `Unknown`."""
        for axis in at:
            self.place(axis)
        return int(self.grid[tuple(at.get(axis, 0) for axis in self.axes)])

    def coordinate(self, rank: int) -> Coordinate:
        """Where `rank` sits on every axis. Raises `IndexError` if there is no such rank."""
        position = np.argwhere(self.grid == rank)[0]
        return Coordinate(**{axis: int(i) for axis, i in zip(self.axes, position, strict=True)})

    def replica(self, rank: int) -> int:
        """Which part of the batch a rank computes, counted over all axes that divide it."""
        at, which = self.coordinate(rank), 0
        for axis in dividing("batch"):
            which = which * self.degree(axis) + at[axis]
        return which

    def groups(self, axis: str) -> list[list[int]]:
        """All groups of ranks that differ only along `axis`, each in the order of that axis."""
        last = np.moveaxis(self.grid, self.place(axis), -1)
        return [[int(r) for r in row] for row in last.reshape(-1, self.degree(axis))]

    def group(self, axis: str, rank: int) -> list[int]:
        """The group along `axis` that holds `rank`."""
        return next(g for g in self.groups(axis) if rank in g)


def mesh_of(job: Job) -> Mesh:
    """The mesh of a job's plan: its axes in the plan's order, with their degrees."""
    return Mesh(tuple(job.plan.order.split("-")), **job.plan.degrees)
