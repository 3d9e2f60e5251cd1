"""A model family nobody else has: blocks of two kinds, which widen and narrow what they are given, and no tokens.

It learns y = tanh(A·x) of random vectors x. h hidden; widen: h → 3h → 2h, narrow: 2h → 2h → h; t tensor degree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from engine.job.errors import Unknown
from engine.job.families import FAMILIES
from engine.job.job import Job, Model
from engine.job.nearest import any_of, divisors
from engine.layers.tensor import TensorAxis
from engine.model.family import Family, Shape, in_microbatches
from engine.model.params import Param
from engine.model.unit_kinds import UNIT_KINDS, UnitKind, kind_of

IN, OUT = 16, 8

UNIT_KINDS.add(UnitKind(name="entry", source=True))
UNIT_KINDS.add(UnitKind(name="widen", block=True))
UNIT_KINDS.add(UnitKind(name="narrow", block=True))
UNIT_KINDS.add(UnitKind(name="exit", loss=True))


class MLPFamily(Family):
    name = "mlp"
    label = "An MLP"
    layers = "tests.seams.mlp:MLP"
    data_type = "float32"

    def units(self, model: Model) -> tuple[str, ...]:
        return ("entry", *(f"{('widen', 'narrow')[i % 2]}{i}" for i in range(model.layers)), "exit")

    def params(self, model: Model, tp: int, kind: str) -> tuple[Param, ...]:
        h = model.hidden
        if kind == "entry":
            return Param("weight", (h, IN), placements={"tp": 1}, std=IN**-0.5), Param("bias", (h,))
        if kind == "exit":
            width = h * (1 + model.layers % 2)
            return (Param("weight", (OUT, width), placements={"tp": 0}, std=width**-0.5),)
        if kind not in ("widen", "narrow"):
            raise Unknown("unit of an MLP", kind, ["entry", "widen", "narrow", "exit"])
        into, inside, out = (h, 3 * h, 2 * h) if kind == "widen" else (2 * h, 2 * h, h)
        return (
            Param("up.weight", (inside, into), placements={"tp": 0}, std=into**-0.5),
            Param("up.bias", (inside,), placements={"tp": 0}),
            Param("down.weight", (out, inside), placements={"tp": 1}, std=inside**-0.5),
            Param("norm.weight", (into,), fill=1.0),
            Param("norm.bias", (into,)),
            Param("down.bias", (out,)),
        )

    def output_shape(self, job: Job, kind: str) -> Shape:
        width = {"entry": 1, "widen": 2, "narrow": 1, "exit": 0}[kind] * job.model.hidden
        return (1, job.microbatch_size, width) if width else ()

    def data_shape(self, job: Job) -> Shape:
        return 1, job.microbatch_size, IN + OUT

    def batch(self, job: Job, step: int, dp_index: int) -> list[NDArray[np.float32]]:
        fixed = np.random.default_rng(0).normal(size=(IN, OUT)) / 2
        x = np.random.default_rng((job.training.seed, step)).normal(size=(job.training.batch, IN))
        samples = np.concatenate([x, np.tanh(x @ fixed)], axis=1).astype(np.float32)
        return [micro[None] for micro in in_microbatches(job, samples, dp_index)]

    def smallest(self, model: Model) -> Model:
        return replace(model, layers=min(model.layers, 2 + model.layers % 2))

    def complaints(self, job: Job) -> Iterator[str]:
        plan = job.plan
        if OUT % plan.tp or job.model.hidden % plan.tp:
            near = any_of(divisors(OUT), plan.tp)
            yield f"tp={plan.tp} does not divide hidden={job.model.hidden} and {OUT}: use {near}."
        if job.scatters_sequence:
            yield "family=mlp has no sequence to split: use sequence_parallel=false."
        if plan.recompute == "selective":
            yield "family=mlp has no attention to recompute: use recompute=none or full."
        if job.model.tied:
            yield "family=mlp has no token matrix to tie: use tied=false."


class MLP:
    """`engine.layers.layers.Layers` of it. Activations: [1, b, width]."""

    def __init__(self, job: Job, axis: TensorAxis, device: torch.device, dtype: torch.dtype) -> None:
        self.axis, self.dtype = axis, dtype
        self.loss_scale = 1.0 / (2 * job.training.batch * OUT)

    def forward(self, unit: str, params: Mapping[str, Tensor], x: Tensor | None, data: Tensor) -> Tensor:
        p = {name.removeprefix(unit + "."): value for name, value in params.items()}
        kind = kind_of(unit).name
        if kind == "entry":
            mine = data[..., :IN].to(self.dtype).chunk(self.axis.size, -1)[self.axis.index]
            return self.axis.row_linear(mine, p["weight"], p["bias"])
        assert x is not None
        if kind == "exit":
            return self.loss(self.axis.column_linear(x, p["weight"], None), data[..., IN:])
        if kind not in ("widen", "narrow"):
            raise Unknown("unit of an MLP", unit, ["entry", "widen0", "narrow1", "exit"])
        norm = F.layer_norm(x, x.shape[-1:], *(self.axis.vector(p[f"norm.{part}"]) for part in ("weight", "bias")))
        y = F.gelu(self.axis.column_linear(norm, p["up.weight"], p["up.bias"]))
        return self.axis.row_linear(y, p["down.weight"], p["down.bias"])

    def loss(self, found: Tensor, wanted: Tensor) -> Tensor:
        """Half the mean squared error; found: this tensor rank's outputs [1, b, OUT/t]."""
        off = found - wanted.chunk(self.axis.size, -1)[self.axis.index]
        partial = off.float().square().sum((0, 1, 2), keepdim=True)
        return self.axis.leave(partial).sum() * self.loss_scale


FAMILIES.add(MLPFamily())
