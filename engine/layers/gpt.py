"""A GPT, written once for every plan: pre-norm, causal attention, GELU, learned positions (Radford et al. 2019).

Each unit is a function of its parameters and its input; which parts of them this rank holds is settled by the tensor
axis. Shapes: s sequence, b micro-batch, h hidden, t tensor-parallel degree, a heads, d = h/a. With sequence
parallelism, activations between blocks hold s/t tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.job.errors import Unknown
from engine.job.job import Job
from engine.layers.checkpoint import recomputed
from engine.layers.tensor import TensorAxis
from engine.layers.vocab import cross_entropy, embed
from engine.model.unit_kinds import kind_of
from engine.model.units import TOKENS

Params = Mapping[str, Tensor]


class GPT:
    """The forward of each unit of a GPT on one rank."""

    def __init__(self, job: Job, axis: TensorAxis, device: torch.device, dtype: torch.dtype) -> None:
        self.model, self.axis = job.model, axis
        self.selective = job.plan.recompute == "selective"
        # 1 ÷ tokens in the global batch, so that losses and gradients of all ranks simply add up
        self.loss_scale = 1.0 / (job.training.batch * job.model.seq)
        # [s, s]: 0 where a token may look, −∞ where it may not
        square = (job.model.seq, job.model.seq)
        self.causal_mask = torch.full(square, -torch.inf, device=device, dtype=dtype).triu(1)

    def forward(self, unit: str, params: Params, x: Tensor | None, tokens: Tensor) -> Tensor:
        """Runs one unit.

        params: by full name. x: the previous unit's output [s or s/t, b, h], None for the embedding. tokens: the
        micro-batch [s + 1, b]. Returns the unit's output, for the head the scaled loss.
        """
        if unit == "embedding":
            return self.embedding(params, tokens[:-1])
        assert x is not None
        if unit == "head":
            return self.head(params, x, tokens[1:])
        if kind_of(unit).name != "block":
            raise Unknown("unit of a GPT", unit, ["embedding", "block0", "head"])
        return self.block({name.removeprefix(unit + "."): p for name, p in params.items()}, x)

    def embedding(self, params: Params, tokens: Tensor) -> Tensor:
        """Token and position embeddings of tokens [s, b]: [s or s/t, b, h]."""
        table = params[f"{TOKENS if self.model.tied else 'embedding'}.weight"]
        positions = self.axis.own_part(params["embedding.positions"])
        return self._dropout(embed(tokens, table, self.axis) + positions[:, None])

    def block(self, params: Params, x: Tensor) -> Tensor:
        """x: [s or s/t, b, h], as is what it returns. params: by names inside the block."""
        x = x + self._dropout(self.attention(params, self.norm(x, params, "norm1")))
        y = self.axis.column_linear(self.norm(x, params, "norm2"), params["up.weight"], params["up.bias"])
        return x + self._dropout(self.axis.row_linear(F.gelu(y), params["down.weight"], params["down.bias"]))

    def attention(self, params: Params, x: Tensor) -> Tensor:
        """Causal self-attention over this rank's heads, in plain matrix products.

        Spelled out so that it costs and saves the same on every device (fused kernels differ between them).
        """
        qkv = self.axis.column_linear(x, params["qkv.weight"], params["qkv.bias"])
        s, b, _ = qkv.shape
        d = self.model.hidden // self.model.heads
        q, k, v = qkv.view(s, b, 3, -1, d).permute(2, 1, 3, 0, 4).flatten(1, 2)  # each [b·a/t, s, d]
        context = recomputed(self._core, q, k, v) if self.selective else self._core(q, k, v)
        merged = context.view(b, -1, s, d).permute(2, 0, 1, 3).reshape(s, b, -1)
        return self.axis.row_linear(merged, params["out.weight"], params["out.bias"])

    def _core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """softmax(q kᵀ / √d) v, each [b·a/t, s, d]: what selective recomputation does not keep."""
        scores = torch.baddbmm(self.causal_mask, q, k.transpose(1, 2), alpha=q.shape[-1] ** -0.5)
        return torch.bmm(self._dropout(scores.softmax(-1)), v)

    def _dropout(self, x: Tensor) -> Tensor:
        """One operator that keeps a byte an element; F.dropout is that on GPUs alone and three operators elsewhere."""
        return torch.native_dropout(x, self.model.dropout, True)[0] if self.model.dropout else x

    def head(self, params: Params, x: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of x [s or s/t, b, h] against targets [s, b], as a sum over their tokens × `loss_scale`: []."""
        weight = params[f"{TOKENS if self.model.tied else 'head'}.weight"]
        logits = self.axis.column_linear(self.norm(x, params, "head.norm"), weight, None)
        return cross_entropy(logits, targets, self.axis, self.model.vocab) * self.loss_scale

    def norm(self, x: Tensor, params: Params, name: str) -> Tensor:
        """LayerNorm over the last dim of x, with the weight and bias called `name`."""
        weight, bias = (self.axis.vector(params[f"{name}.{part}"]) for part in ("weight", "bias"))
        return F.layer_norm(x, x.shape[-1:], weight, bias)
