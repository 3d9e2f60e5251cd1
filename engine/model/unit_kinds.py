"""Kinds of units. Units of one kind are alike in a model: same parameters, same input, same output, same costs.

A unit is called after its kind. Blocks, of which a model has many, are numbered along the model, whatever their kinds:
`block0`, `block1`… or `widen0`, `narrow1`, `widen2`…; all others are one of a kind: `embedding`, `head`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from engine.job.errors import Unknown
from engine.job.registry import Registry


@dataclass(frozen=True, kw_only=True)
class UnitKind:
    """What the engine must know of a unit without its model. A kind means the same in all families that have it."""

    name: str
    block: bool = False
    """One of many that are dealt out to stages. Full recomputation drops it; at unit costs its forward takes 1, that of
    other units nothing."""
    source: bool = False
    """Takes the data and so has no input to make a gradient for: its backward is not split."""
    loss: bool = False
    """Returns the loss."""


UNIT_KINDS: Registry[UnitKind] = Registry("kind of unit")


def kind_of(unit: str) -> UnitKind:
    """Raises `Unknown` for what is no name of a unit, that of a bucket included."""
    stem, number = _parts(unit)
    kind = UNIT_KINDS[stem]
    if kind.block != bool(number):
        raise Unknown("unit", unit, [f"{kind.name}0" if kind.block else kind.name])
    return kind


def is_unit(word: str) -> bool:
    """Whether a unit of some family is called so."""
    stem, number = _parts(word)
    return stem in UNIT_KINDS and UNIT_KINDS[stem].block == bool(number)


def number_of(unit: str) -> int:
    """The place of a block among the blocks of its model."""
    return int(_parts(unit)[1])


@lru_cache(maxsize=65536)
def _parts(unit: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.*?)(\d*)", unit)
    return (match[1], match[2]) if match else (unit, "")
