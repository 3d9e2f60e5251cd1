"""The vocabulary split over the tensor group: embedding lookup and cross-entropy (Shoeybi et al. 2019, section 3)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from engine.layers.tensor import TensorAxis


def embed(tokens: Tensor, table: Tensor, axis: TensorAxis) -> Tensor:
    """tokens: [s, b]; table: this rank's rows [V/t, h]; returns [s or s/t, b, h].

    Tokens of other ranks look up zeros here, and the sum over the group puts every row in its place.
    """
    if axis.size == 1:
        return F.embedding(tokens, table)
    local = tokens - axis.index * table.shape[0]
    elsewhere = (local < 0) | (local >= table.shape[0])
    rows = F.embedding(local.masked_fill(elsewhere, 0), table)
    return axis.leave(rows.masked_fill(elsewhere[..., None], 0.0))


def cross_entropy(logits: Tensor, targets: Tensor, axis: TensorAxis, vocab: int) -> Tensor:
    """Summed cross-entropy over all tokens.

    logits: this rank's columns [s, b, V/t]; targets: [s, b]; vocab: real vocabulary size, later columns are padding.
    Three all-reduces of [s, b]: the maximum, the sum of exponentials and the logit of the target. Every tensor rank
    returns the same scalar. Computed in fp32 whatever the logits are.
    """
    loss: Tensor = _CrossEntropy.apply(logits.float(), targets, axis, vocab)
    return loss


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, axis: TensorAxis, vocab: int) -> Tensor:
        first, width = axis.index * logits.shape[-1], logits.shape[-1]
        if width * axis.size > vocab:  # on every rank alike, so that all tensor ranks cost the same
            padding = torch.arange(first, first + width, device=logits.device) >= vocab
            logits = logits.masked_fill(padding, -torch.inf)
        top = logits.amax(-1)
        if axis.size > 1:
            axis.all_reduce(top, maximum=True)
        probs = (logits - top[..., None]).exp_()
        total = probs.sum(-1)
        local = targets - first
        elsewhere = (local < 0) | (local >= width)
        local = local.masked_fill(elsewhere, 0)[..., None]
        hit = (logits.gather(-1, local)[..., 0] - top).masked_fill(elsewhere, 0.0)
        if axis.size > 1:
            axis.all_reduce(total)
            axis.all_reduce(hit)
        ctx.save_for_backward(probs.div_(total[..., None]), local, elsewhere)
        return (total.log() - hit).sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        probs, local, elsewhere = ctx.saved_tensors
        mine = (~elsewhere).to(probs.dtype)[..., None]
        return probs.scatter_add(-1, local, -mine) * grads[0], None, None, None
