"""The memory ledger of a rank: every byte of state, activations and buffers belongs to exactly one category.

Counted: params, grads, optimizer (state that lives between steps), activations (what autograd saved for backward),
gathered (full parameters that ZeRO-3 holds for a moment), buffers (messages received and not yet used, messages sent
and not yet known to have arrived, and the full gradients and reduction results of ZeRO-2/3). Not counted: scratch
space inside an operator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from engine.recording.tables import CATEGORIES, MemoryRow


class Ledger:
    """Current bytes by category and every change of them."""

    def __init__(self, rank: int, clock_offset_ns: int = 0) -> None:
        """clock_offset_ns: as for the recorder."""
        self.rank, self._offset = rank, clock_offset_ns
        self.held = dict.fromkeys(CATEGORIES, 0)
        self._changes: list[tuple[int, str, int]] = []

    def add(self, category: str, nbytes: int) -> None:
        """Books `nbytes` more (or fewer, if negative)."""
        if nbytes:
            self.held[category] += nbytes
            assert self.held[category] >= 0, (category, nbytes)
            self._changes.append((time.perf_counter_ns(), category, self.held[category]))

    def flush(self, step: int) -> list[MemoryRow]:
        """The changes since the last flush."""
        rows = [MemoryRow(step, self.rank, t + self._offset, category, held) for t, category, held in self._changes]
        self._changes = []
        return rows


@dataclass
class Saved:
    """Bytes autograd kept for backward, each storage once."""

    nbytes: int = 0


def storage_identity(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory. Not the memory's address, which on the meta device is 0 for all."""
    return int(tensor.untyped_storage()._cdata)


@contextmanager
def watching_saved(constants: set[int]) -> Iterator[Saved]:
    """Sums the storages saved for backward inside, except those whose identity is in `constants` (parameters)."""
    saved, seen = Saved(), set(constants)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if (identity := storage_identity(tensor)) not in seen:
            seen.add(identity)
            saved.nbytes += tensor.untyped_storage().nbytes()
        return tensor

    def unpack(tensor: Any) -> Any:
        return tensor

    with saved_tensors_hooks(pack, unpack):
        yield saved
