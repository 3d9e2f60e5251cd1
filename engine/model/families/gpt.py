"""The GPT: pre-norm blocks, causal attention, GELU, learned positions (Radford et al. 2019).

Its units are `embedding`, `block0` … `block{L-1}` and `head`. A tied model has one more, `tokens`: the token matrix
that both ends use. It computes nothing by itself; embedding and head need it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.job.errors import Unknown
from engine.job.families import FAMILIES
from engine.job.nearest import any_of, divisors
from engine.model.family import Family, Shape
from engine.model.params import Param, padded_vocab
from engine.model.unit_kinds import UNIT_KINDS, UnitKind
from engine.model.units import TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from engine.job.job import Job, Model

STD = 0.02  # GPT-2's initialisation (Radford et al. 2019, section 2.3)
BYTE_VALUES = 256

EMBEDDING = UNIT_KINDS.add(UnitKind(name="embedding", source=True)).name
BLOCK = UNIT_KINDS.add(UnitKind(name="block", block=True)).name
HEAD = UNIT_KINDS.add(UnitKind(name="head", loss=True)).name
UNIT_KINDS.add(UnitKind(name=TOKENS))


class GPTFamily(Family):
    name = "gpt"
    label = "A GPT"
    layers = "engine.layers.gpt:GPT"
    closed_forms = "engine.prediction.gpt_formulas:GPT_FORMULAS"
    knobs = ("layers", "hidden", "heads", "seq", "vocab", "tied", "dropout")

    def units(self, model: Model) -> tuple[str, ...]:
        """The embedding, a block for each layer, the head."""
        return (EMBEDDING, *(f"{BLOCK}{i}" for i in range(model.layers)), HEAD)

    def needs(self, model: Model, unit: str) -> tuple[str, ...]:
        """Its own, and both ends of a tied model `tokens` too."""
        return (TOKENS, unit) if model.tied and unit in (EMBEDDING, HEAD) else (unit,)

    def params(self, model: Model, tp: int, kind: str) -> tuple[Param, ...]:
        """By names inside the unit; shapes are those of the whole tensors. Raises `Unknown`."""
        if kind == BLOCK:
            return _block(model)
        ends = _ends(model, tp)
        if kind not in ends:
            raise Unknown("unit of a GPT", kind, [BLOCK, *ends])
        return ends[kind]

    def forward_cost(self, model: Model, kind: str) -> float:
        """FLOPs a token: 24h² + 4sh for a block (Narayanan et al. 2021, appendix), 2hV for the head."""
        h, s = model.hidden, model.seq
        if kind == EMBEDDING:
            return 0.0
        return 2.0 * h * model.vocab if kind == HEAD else 24.0 * h * h + 4.0 * s * h

    def output_shape(self, job: Job, kind: str) -> Shape:
        """[s or s/t, b, h]; of the head, which gives the loss, []."""
        if kind == HEAD:
            return ()
        s = job.model.seq // (job.plan.tp if job.scatters_sequence else 1)
        return s, job.microbatch_size, job.model.hidden

    def data_shape(self, job: Job) -> Shape:
        """Tokens as activations lie, sequence first; inputs are all but the last, targets all but the first."""
        return job.model.seq + 1, job.microbatch_size

    def batch(self, job: Job, step: int, replica: int) -> list[NDArray[np.int64]]:
        """Byte values of the text, [s + 1, b] for each micro-batch."""
        from engine.model.data import microbatches  # numpy and the text, which only ranks need

        return [micro.T.copy() for micro in microbatches(job, step, replica)]

    def smallest(self, model: Model) -> Model:
        """One block between the two ends."""
        return replace(model, layers=1)

    def complaints(self, job: Job) -> Iterator[str]:
        """About heads, sequence and vocabulary, each with the nearest valid setting."""
        model, plan = job.model, job.plan
        if model.hidden % model.heads:
            fitting = [d for d in divisors(model.hidden) if d % plan.tp == 0] or divisors(model.hidden)
            yield f"heads={model.heads} does not divide hidden={model.hidden}: use {any_of(fitting, model.heads)}."
        common = math.gcd(model.heads, model.seq) if job.scatters_sequence else model.heads
        for name, length in (("heads", model.heads), ("seq", model.seq)):
            if common % plan.tp and length % plan.tp:
                why = "sequence_parallel: " if name == "seq" else ""
                yield f"{why}tp={plan.tp} does not divide {name}={length}: use {any_of(divisors(common), plan.tp)}."
        if model.vocab < BYTE_VALUES:
            yield (
                f"vocab={model.vocab} cannot hold the {BYTE_VALUES} byte values of the text: use {BYTE_VALUES} or more."
            )


@lru_cache(maxsize=64)
def _block(model: Model) -> tuple[Param, ...]:
    h, a = model.hidden, model.heads
    residual_std = STD / (2 * model.layers) ** 0.5  # GPT-2: two residual additions a block
    return (
        Param("qkv.weight", (3, a, h // a, h), placements={"tp": 1}, std=STD),
        Param("qkv.bias", (3, a, h // a), placements={"tp": 1}),
        Param("out.weight", (h, h), placements={"tp": 1}, std=residual_std),
        Param("up.weight", (4 * h, h), placements={"tp": 0}, std=STD),
        Param("up.bias", (4 * h,), placements={"tp": 0}),
        Param("down.weight", (h, 4 * h), placements={"tp": 1}, std=residual_std),
        Param("norm1.weight", (h,), fill=1.0),
        Param("norm1.bias", (h,)),
        Param("out.bias", (h,)),
        Param("norm2.weight", (h,), fill=1.0),
        Param("norm2.bias", (h,)),
        Param("down.bias", (h,)),
    )


def _ends(model: Model, tp: int) -> dict[str, tuple[Param, ...]]:
    vocab, h = padded_vocab(model, tp), model.hidden
    table = Param("weight", (vocab, h), placements={"tp": 0}, std=STD, rows=model.vocab)
    positions = Param("positions", (model.seq, h), std=STD)
    norm = (Param("norm.weight", (h,), fill=1.0), Param("norm.bias", (h,)))
    if model.tied:
        return {TOKENS: (table,), EMBEDDING: (positions,), HEAD: norm}
    return {EMBEDDING: (table, positions), HEAD: (table, *norm)}


FAMILIES.add(GPTFamily())
