"""The axes of the mesh, which everybody asks: one record each, so that a new way to share out work is one `Axis`.

A newcomer is `AXES.add(Axis(...))` and a stream of its name for its collectives (`engine.program.streams`). A plan has
a degree for it (`rp=2`, as for the axes of the engine), the mesh a dim, each rank a coordinate and a group on it. What
it means for gradients follows from what it divides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from engine.job.errors import JobRefused, told
from engine.job.registry import Registry


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Along an axis ranks differ in one coordinate and share out one thing.

    name: in options, programs and recordings. word: in sentences and pictures. letter: where there is room for one.
    divides: the batch: each rank computes other samples, so that the gradients of parameters that are not cut along the
    axis are summed over it; the tensors of each layer: parameters that are not cut along it have the same gradient on
    all its ranks, or, where the sequence is scattered too, parts of it; or the layers, in stages.
    shards: whether ZeRO cuts state along it. built_in: `engine.job.job.Plan` has a field of its name.
    """

    name: str
    word: str
    letter: str
    divides: Literal["batch", "tensors", "layers"]
    shards: bool = False
    built_in: bool = False

    def __post_init__(self) -> None:
        assert self.built_in or self.divides == "batch", f"{self.name}: layers and schedules ask for tp and pp by name"


AXES: Registry[Axis] = Registry(
    "axis",
    Axis(name="dp", word="data", letter="d", divides="batch", shards=True, built_in=True),
    Axis(name="tp", word="tensor", letter="t", divides="tensors", built_in=True),
    Axis(name="pp", word="pipeline", letter="p", divides="layers", built_in=True),
)
"""In the order of coordinates: x, y, z of pictures, then newcomers."""


def sharding_axis() -> str:
    """The axis along which ZeRO cuts state."""
    return next(axis.name for axis in AXES if axis.shards)


def dividing(what: Literal["batch", "tensors", "layers"]) -> tuple[str, ...]:
    """The axes that divide it; of those of the batch first the one along which ZeRO cuts, whose slices the next sum."""
    found = [axis for axis in AXES if axis.divides == what]
    return tuple(axis.name for axis in sorted(found, key=lambda axis: not axis.shards))


def scalar_axes(degrees: Iterable[str]) -> tuple[str, ...]:
    """Those of `degrees` in the order in which loss and norm are summed: inside a replica of the model, then over all.

    Raises `Unknown`.
    """
    within = [axis for axis in degrees if AXES[axis].divides != "batch"]
    return (*within, *(axis for axis in dividing("batch") if axis in degrees))


@cache
def added_degrees(axes: str) -> tuple[tuple[str, int], ...]:
    """What `Plan.axes` says, by name. Raises `JobRefused` if that cannot be read."""
    found = [re.fullmatch(r"\s*(\w+)=([1-9]\d*)\s*", word) for word in axes.split(",")]
    names = [match[1] for match in found if match]
    if None in found or len(set(names)) < len(names):
        raise JobRefused(
            f"axes={told(axes)} is not valid: use NAME=DEGREE for each axis, such as {names[0] if names else 'rp'}=2."
        )
    if taken := [name for name in names if name in AXES and AXES[name].built_in]:
        raise JobRefused(f"axes={told(axes)} names {taken[0]}, which has an option of its own: use {taken[0]}=N.")
    return tuple((match[1], int(match[2])) for match in found if match)


def with_degree(axes: str, name: str, degree: object) -> str:
    """`Plan.axes` with another degree for one of them. Raises `JobRefused` for one that is none."""
    if not isinstance(degree, int) or isinstance(degree, bool) or degree < 1:
        raise JobRefused(f"{name}={told(degree)} is not valid: use a whole number from 1 on.")
    others = {known: value for known, value in (added_degrees(axes) if axes else ()) if known != name}
    return further_axes(others | {name: degree})


def further_axes(degrees: Mapping[str, int]) -> str:
    """`Plan.axes` for these degrees; the engine's own axes have fields of their names. Raises `Unknown`."""
    return ",".join(f"{name}={n}" for name, n in degrees.items() if n > 1 and not AXES[name].built_in)
