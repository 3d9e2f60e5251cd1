"""What parameters each unit has: full shape, how tensor parallelism splits it, how it starts. No torch needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod
from typing import TYPE_CHECKING

from engine.job.families import FAMILIES
from engine.model.unit_kinds import kind_of

if TYPE_CHECKING:
    from engine.job.job import Model


@dataclass(frozen=True)
class Param:
    """A named parameter.

    shape: of the full tensor, padding rows included. split: the dim tensor parallelism cuts, None if every tensor
    rank holds the whole. std: of the normal it starts from; 0 means the constant `fill`. rows: leading rows that are
    real; the others pad the vocabulary to a multiple of tp and stay zero.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    std: float = 0.0
    fill: float = 0.0
    rows: int | None = None

    def local_shape(self, tp: int) -> tuple[int, ...]:
        if self.split is None:
            return self.shape
        return tuple(n // tp if dim == self.split else n for dim, n in enumerate(self.shape))

    def local_size(self, tp: int) -> int:
        return prod(self.local_shape(tp))


def padded_vocab(model: Model, tp: int) -> int:
    return ceil(model.vocab / tp) * tp


def unit_params(model: Model, tp: int, unit: str) -> tuple[Param, ...]:
    """The parameters of one unit under tensor-parallel degree `tp`, by their full names."""
    local: tuple[Param, ...] = FAMILIES[model.family].params(model, tp, kind_of(unit).name)
    return tuple(replace(p, name=f"{unit}.{p.name}") for p in local)


def unit_size(model: Model, tp: int, unit: str) -> int:
    """Parameters of a unit on one tensor rank."""
    return _sizes(model, tp, kind_of(unit).name)[0]


def replicated_size(model: Model, tp: int, unit: str) -> int:
    """Those of them that every tensor rank holds whole."""
    return _sizes(model, tp, kind_of(unit).name)[1]


@lru_cache(maxsize=256)
def _sizes(model: Model, tp: int, kind: str) -> tuple[int, int]:
    params: tuple[Param, ...] = FAMILIES[model.family].params(model, tp, kind)
    whole = sum(p.local_size(tp) for p in params if p.split is None)
    return sum(p.local_size(tp) for p in params), whole
