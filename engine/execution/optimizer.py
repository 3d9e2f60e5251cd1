"""Adam (Kingma & Ba 2015, algorithm 1) on flat shards."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Adam:
    """betas and eps are LLaMA-2's (Touvron et al. 2023, section 2.2).

    Its eps of 1e-5 also matters here: some gradients are zero but for rounding (a key bias shifts every attention score
    alike), and with a tiny eps Adam would blow that rounding up to full steps, different for each plan.
    """

    lr: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-5

    def step(self, param: Tensor, grad: Tensor, m: Tensor, v: Tensor, t: int) -> None:
        """Updates a shard in place. m, v: running means of the gradient and its square; t: step number from 1."""
        m.lerp_(grad, 1 - self.beta1)
        v.mul_(self.beta2).addcmul_(grad, grad, value=1 - self.beta2)
        denominator = (v.sqrt() / (1 - self.beta2**t) ** 0.5).add_(self.eps)
        param.addcdiv_(m, denominator, value=-self.lr / (1 - self.beta1**t))


def clip_factor(norm: float, clip: float) -> float | None:
    """What gradients are scaled by so that their global norm is at most `clip`; None if they are never clipped (0)."""
    return min(1.0, clip / (norm + 1e-6)) if clip else None


def squared_norm(grad: Tensor) -> Tensor:
    """Sum of squares as a double, accumulated in double precision."""
    norm: Tensor = torch.linalg.vector_norm(grad, dtype=torch.float64)
    return norm.square()
