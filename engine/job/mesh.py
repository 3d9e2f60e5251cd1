"""The mesh: every rank has a data, a tensor and a pipeline coordinate.

The order of the axes decides which ranks are neighbours. Megatron's default, kept here, is tensor fastest,
then data, then pipeline, so that the busiest axis sits on the closest devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job

AXES = ("dp", "tp", "pp")


@dataclass(frozen=True)
class Coordinate:
    """Where a rank sits. x = dp, y = tp, z = pp in every picture of the lab."""

    dp: int
    tp: int
    pp: int

    def __str__(self) -> str:
        return f"data {self.dp}, tensor {self.tp}, pipeline {self.pp}"


@dataclass(frozen=True)
class Mesh:
    """A dp × tp × pp grid of ranks; `order` names the axes, fastest-varying first."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    order: tuple[str, ...] = ("tp", "dp", "pp")

    def __post_init__(self) -> None:
        assert sorted(self.order) == sorted(AXES), self.order

    @property
    def size(self) -> int:
        return prod(self.degree(axis) for axis in AXES)

    def degree(self, axis: str) -> int:
        return int(getattr(self, axis))

    @cached_property
    def grid(self) -> NDArray[np.int64]:
        """Ranks as an array indexed [dp, tp, pp]."""
        slowest_first = self.order[::-1]
        ranks = np.arange(self.size).reshape([self.degree(axis) for axis in slowest_first])
        return ranks.transpose([slowest_first.index(axis) for axis in AXES])

    def rank(self, dp: int, tp: int, pp: int) -> int:
        return int(self.grid[dp, tp, pp])

    def coordinate(self, rank: int) -> Coordinate:
        position = np.argwhere(self.grid == rank)[0]
        return Coordinate(*(int(i) for i in position))

    def groups(self, axis: str) -> list[list[int]]:
        """All groups of ranks that differ only along `axis`, each in the order of that axis."""
        last = np.moveaxis(self.grid, AXES.index(axis), -1)
        return [[int(r) for r in row] for row in last.reshape(-1, self.degree(axis))]

    def group(self, axis: str, rank: int) -> list[int]:
        """The group along `axis` that holds `rank`."""
        return next(g for g in self.groups(axis) if rank in g)


def mesh_of(job: Job) -> Mesh:
    plan = job.plan
    return Mesh(plan.dp, plan.tp, plan.pp, tuple(plan.order.split("-")))
