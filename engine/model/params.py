"""What parameters each unit has: full shape, along which axes it is cut, how it starts. No torch needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, prod
from typing import TYPE_CHECKING, Literal

from engine.job.axes import AXES, dividing
from engine.job.families import FAMILIES
from engine.model.unit_kinds import kind_of

if TYPE_CHECKING:
    from engine.job.job import Model


@dataclass(frozen=True)
class Param:
    """A named parameter.

    shape: of the full tensor, padding rows included. placements: axis of the mesh → the dim it cuts (DTensor's word);
    along every other axis each rank holds the whole. std: of the normal it starts from; 0 means the constant `fill`.
    rows: leading rows that are real; the others pad the vocabulary to a multiple of tp and stay zero.
    """

    name: str
    shape: tuple[int, ...]
    placements: Mapping[str, int] = field(default_factory=dict, hash=False)
    std: float = 0.0
    fill: float = 0.0
    rows: int | None = None

    def local_shape(self, degrees: Mapping[str, int]) -> tuple[int, ...]:
        """degrees: of axes, 1 for those that are not named. Raises `Unknown` for a placement on none of `AXES`."""
        shape = list(self.shape)
        for axis, dim in self.placements.items():
            shape[dim] //= degrees.get(AXES[axis].name, 1)
        return tuple(shape)

    def local_size(self, degrees: Mapping[str, int]) -> int:
        """Elements of `local_shape`. Raises `Unknown` as that does."""
        return prod(self.local_shape(degrees))

    def is_cut(self, along: Literal["batch", "tensors"]) -> tuple[str, ...]:
        """The axes among those that divide the batch, or tensors, that cut it."""
        return tuple(axis for axis in dividing(along) if axis in self.placements)


def padded_vocab(model: Model, tp: int) -> int:
    """Rows of the token matrix: the vocabulary, rounded up to a multiple of tp."""
    return ceil(model.vocab / tp) * tp


def unit_params(model: Model, tp: int, unit: str) -> tuple[Param, ...]:
    """The parameters of one unit under tensor-parallel degree `tp`, by their full names."""
    local: tuple[Param, ...] = FAMILIES[model.family].params(model, tp, kind_of(unit).name)
    return tuple(replace(p, name=f"{unit}.{p.name}") for p in local)


def unit_size(model: Model, degrees: Mapping[str, int], unit: str) -> int:
    """Parameters of a unit on one rank."""
    return _sizes(model, tuple(degrees.items()), kind_of(unit).name)[0]


def replicated_size(model: Model, degrees: Mapping[str, int], unit: str) -> int:
    """Those of them that every tensor rank holds whole."""
    return _sizes(model, tuple(degrees.items()), kind_of(unit).name)[1]


def batch_cuts(model: Model, degrees: Mapping[str, int], unit: str) -> tuple[str, ...]:
    """The axes that divide the batch and cut the unit's parameters, so that their gradients need no sum over them.

    Raises `ValueError` if not all its parameters are cut alike.
    """
    return _sizes(model, tuple(degrees.items()), kind_of(unit).name)[2]


@lru_cache(maxsize=256)
def _sizes(model: Model, degrees: tuple[tuple[str, int], ...], kind: str) -> tuple[int, int, tuple[str, ...]]:
    of = dict(degrees)
    params: tuple[Param, ...] = FAMILIES[model.family].params(model, of.get("tp", 1), kind)
    whole = sum(p.local_size(of) for p in params if not p.is_cut("tensors"))
    cuts = dict.fromkeys(p.is_cut("batch") for p in params)
    if len(cuts) > 1:
        ways = " and ".join(", ".join(axes) or "none" for axes in cuts)
        raise ValueError(
            f"parameters of {kind} are cut along {ways}: put each in a unit of its own, which {kind} needs."
        )
    return sum(p.local_size(of) for p in params), whole, next(iter(cuts), ())
