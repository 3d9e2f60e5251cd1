"""The same GPT as a plain `torch.nn.Module`, sharing nothing with the engine but the initial values: the oracle."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from engine.job.job import Job
from engine.model.data import global_batch
from engine.model.initialization import seeded
from engine.model.params import unit_params
from engine.model.units import compute_units


class Block(nn.Module):
    def __init__(self, h: int, heads: int) -> None:
        super().__init__()
        self.head_width = h // heads
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.q, self.k, self.v, self.out = (nn.Linear(h, h) for _ in range(4))
        self.up, self.down = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        b, s, _ = y.shape
        q, k, v = (f(y).view(b, s, -1, self.head_width).transpose(1, 2) for f in (self.q, self.k, self.v))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, -1)
        x = x + self.out(context)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TorchGPT(nn.Module):
    """Blocks `first` to `last` of a GPT, with the ends where they belong; the whole model by default."""

    def __init__(self, job: Job, first: int = 0, last: int | None = None) -> None:
        super().__init__()
        model = job.model
        last = model.layers if last is None else last
        self.embedding = nn.Embedding(model.vocab, model.hidden) if first == 0 else None
        self.positions = nn.Parameter(torch.empty(model.seq, model.hidden)) if first == 0 else None
        self.blocks = nn.ModuleDict({str(i): Block(model.hidden, model.heads) for i in range(first, last)})
        self.norm = nn.LayerNorm(model.hidden) if last == model.layers else None
        self.head = nn.Linear(model.hidden, model.vocab, bias=False) if last == model.layers else None
        self.load(job)

    @torch.no_grad()
    def load(self, job: Job) -> None:
        """The engine's named seeds, copied parameter by parameter."""
        full = {
            p.name: seeded(job.training.seed)(p) for u in compute_units(job.model) for p in unit_params(job.model, 1, u)
        }
        if self.embedding is not None and self.positions is not None:
            self.embedding.weight.copy_(full["embedding.weight"])
            self.positions.copy_(full["embedding.positions"])
        for i, block in self.blocks.items():
            weights, biases = full[f"block{i}.qkv.weight"], full[f"block{i}.qkv.bias"]
            for part, linear in enumerate((block.q, block.k, block.v)):
                linear.weight.copy_(weights[part].flatten(0, 1))
                linear.bias.copy_(biases[part].flatten())
            for name in ("out", "up", "down"):
                getattr(block, name).weight.copy_(full[f"block{i}.{name}.weight"])
                getattr(block, name).bias.copy_(full[f"block{i}.{name}.bias"])
        if self.norm is not None and self.head is not None:
            self.head.weight.copy_(full["head.weight"])

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x) + self.positions
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x)) if self.head is not None and self.norm is not None else x


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def batch_of(job: Job, step: int) -> tuple[Tensor, Tensor]:
    """(inputs, targets), each [batch, seq]."""
    tokens = torch.from_numpy(global_batch(job, step))
    return tokens[:, :-1], tokens[:, 1:].contiguous()


def adam(module: nn.Module, job: Job) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), job.training.lr, betas=(0.9, 0.95), eps=1e-5)
