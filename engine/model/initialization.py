"""Where values come from: full tensors made from named seeds, then sliced, so that every layout starts equal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from engine.model.params import Param

Source = Callable[[Param], Tensor]


def seeded(seed: int) -> Source:
    """Full initial values of each parameter, from a generator seeded by the parameter's name; padding rows are zero."""

    def full(param: Param) -> Tensor:
        shape = param.shape if param.rows is None else (param.rows, *param.shape[1:])
        if not param.std:
            return torch.full(shape, param.fill)
        digest = hashlib.sha256(f"{seed}/{param.name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        return torch.empty(shape).normal_(0.0, param.std, generator=generator)

    return full


def nudged(source: Source) -> Source:
    """The same values, each moved to a neighbouring number of its type, by turns up and down; zeros stay zero.

    Two trainings that start so far apart differ by nothing but rounding.
    """

    def full(param: Param) -> Tensor:
        values = source(param)
        way = torch.ones(values.numel()).view_as(values)
        way.view(-1)[::2] = -1
        return torch.where(values == 0, values, torch.nextafter(values, way * torch.inf))

    return full


def local_slice(param: Param, full: Tensor, degrees: Mapping[str, int], at: Mapping[str, int]) -> Tensor:
    """The part of a full tensor that the rank at a coordinate holds; zero rows are added where `param` is padded."""
    if full.shape[0] < param.shape[0]:
        full = torch.cat([full, full.new_zeros(param.shape[0] - full.shape[0], *full.shape[1:])])
    for axis, dim in param.placements.items():
        full = full.chunk(degrees.get(axis, 1), dim)[at[axis]]
    return full
