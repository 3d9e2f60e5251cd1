"""A few weights of every tensor, looked at after every step: so cheap that every run can do it, and in every layout the
same ones, so that the first step and tensor in which a run leaves one process can be named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.execution.flat_bucket import FlatBucket
from engine.execution.reference import watched_steps
from engine.model.initialization import Source
from engine.model.params import Param

PER_TENSOR = 64
"""Weights looked at in a tensor; all of a smaller one."""
Samples = dict[str, Tensor]
"""By the parameter's name: [watched steps, weights looked at], fp32."""


def chosen(param: Param) -> Tensor:
    """Places [at most PER_TENSOR], rising, in the flattened full tensor without padding rows: drawn by its name."""
    rows = param.shape[0] if param.rows is None else param.rows
    size = rows * torch.Size(param.shape[1:]).numel()
    if size <= PER_TENSOR:
        return torch.arange(size)
    seed = int.from_bytes(hashlib.sha256(param.name.encode()).digest()[:8], "little") >> 1
    places: Tensor = torch.randint(size, (PER_TENSOR,), generator=torch.Generator().manual_seed(seed)).unique()
    return places


@dataclass(frozen=True)
class _Place:
    """Where a bucket's weights lie that are looked at. at: in what the rank holds; tensor, which: of which parameter
    and the how manieth of it each is."""

    bucket: FlatBucket
    at: Tensor
    tensor: Tensor
    which: Tensor
    names: tuple[str, ...]


@dataclass
class WeightLooks:
    """What one rank sees of its weights: `look` after a step, `off_by` when the others' are known."""

    places: tuple[_Place, ...]
    steps: tuple[int, ...]
    seen: list[list[Tensor]] = field(default_factory=list)
    """By look, the first before the training, and bucket."""

    @classmethod
    def of(cls, buckets: Iterable[FlatBucket], steps: int) -> WeightLooks:
        looks = cls(tuple(_place(bucket) for bucket in buckets), watched_steps(steps))
        looks._look()
        return looks

    def look(self, step: int) -> None:
        if step in self.steps:
            self._look()

    def _look(self) -> None:
        self.seen.append([place.bucket.held()[place.at].float() for place in self.places])

    def moved(self, start: Source) -> bool:
        """Whether any weight of this rank is another than at the start."""
        if any(not torch.equal(a, b) for a, b in zip(self.seen[0], self.seen[-1], strict=True)):
            return True
        return any(bool(place.bucket.off_by(start).any()) for place in self.places)

    def samples(self) -> Samples:
        """Of a rank that holds whole tensors, to compare others with."""
        return {
            name: torch.stack([seen[i][place.tensor == t][place.which[place.tensor == t].argsort()].cpu()
                               for seen in self.seen[1:]])
            for i, place in enumerate(self.places) for t, name in enumerate(place.names)
        }  # fmt: skip

    def off_by(self, samples: Mapping[str, Tensor]) -> dict[str, list[float]]:
        """By parameter and watched step: largest |Δ| between what this rank saw of it and `samples`.

        Without the parameters of which this rank holds none that are looked at. NaN where a weight is no number.
        """
        found: dict[str, list[float]] = {}
        for i, place in enumerate(self.places):
            own = torch.stack([seen[i].cpu() for seen in self.seen[1:]])
            for t, name in enumerate(place.names):
                mine = (place.tensor == t).cpu()
                if mine.any():
                    apart = own[:, mine] - samples[name][:, place.which.cpu()[mine]]
                    found[name] = apart.abs().amax(dim=1).tolist()
        return found


def _place(bucket: FlatBucket) -> _Place:
    names = tuple(param.name for param in bucket.bucket.params(bucket.job))
    number = {name: t for t, name in enumerate(names)}

    def marks(param: Param) -> Tensor:
        """0, or at the places looked at 1 + the number of what is looked at."""
        rows = param.shape[0] if param.rows is None else param.rows
        full = torch.zeros((rows, *param.shape[1:]), dtype=torch.int32)
        places = chosen(param)
        full.view(-1)[places] = 1 + number[param.name] * PER_TENSOR + torch.arange(len(places), dtype=torch.int32)
        return full

    flat = bucket.laid_out(marks, torch.int32)
    at = flat.nonzero().flatten()
    found = flat[at].long() - 1
    return _Place(bucket, at, found // PER_TENSOR, found % PER_TENSOR, names)
