"""What parameters each unit has: full shape, how tensor parallelism splits it, how it starts. No torch needed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod

from engine.job.job import Model
from engine.model.units import TOKENS

STD = 0.02  # GPT-2's initialisation (Radford et al. 2019, section 2.3)


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
    """The parameters of one unit under tensor-parallel degree `tp`."""
    local = _block(model) if unit.startswith("block") else _ends(model, tp)[unit]
    return tuple(Param(f"{unit}.{p.name}", p.shape, p.split, p.std, p.fill, p.rows) for p in local)


@lru_cache(maxsize=64)
def _block(model: Model) -> tuple[Param, ...]:
    h, a = model.hidden, model.heads
    residual_std = STD / (2 * model.layers) ** 0.5  # GPT-2: two residual additions a block
    return (
        Param("qkv.weight", (3, a, h // a, h), split=1, std=STD),
        Param("qkv.bias", (3, a, h // a), split=1),
        Param("out.weight", (h, h), split=1, std=residual_std),
        Param("up.weight", (4 * h, h), split=0, std=STD),
        Param("up.bias", (4 * h,), split=0),
        Param("down.weight", (h, 4 * h), split=1, std=residual_std),
        Param("norm1.weight", (h,), fill=1.0),
        Param("norm1.bias", (h,)),
        Param("out.bias", (h,)),
        Param("norm2.weight", (h,), fill=1.0),
        Param("norm2.bias", (h,)),
        Param("down.bias", (h,)),
    )


def _ends(model: Model, tp: int) -> dict[str, tuple[Param, ...]]:
    vocab, h = padded_vocab(model, tp), model.hidden
    table = Param("weight", (vocab, h), split=0, std=STD, rows=model.vocab)
    positions = Param("positions", (model.seq, h), std=STD)
    norm = (Param("norm.weight", (h,), fill=1.0), Param("norm.bias", (h,)))
    if model.tied:
        return {TOKENS: (table,), "embedding": (positions,), "head": norm}
    return {"embedding": (table, positions), "head": (table, *norm)}


def unit_size(model: Model, tp: int, unit: str) -> int:
    """Parameters of a unit on one tensor rank."""
    return _sizes(model, tp, _kind(unit))[0]


def replicated_size(model: Model, tp: int, unit: str) -> int:
    """Those of them that every tensor rank holds whole."""
    return _sizes(model, tp, _kind(unit))[1]


def _kind(unit: str) -> str:
    """All blocks are alike."""
    return "block0" if unit.startswith("block") else unit


@lru_cache(maxsize=256)
def _sizes(model: Model, tp: int, unit: str) -> tuple[int, int]:
    params = unit_params(model, tp, unit)
    whole = sum(p.local_size(tp) for p in params if p.split is None)
    return sum(p.local_size(tp) for p in params), whole
