"""Counts the FLOPs and the bytes of the operators that really execute, by watching every dispatch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from engine.recording.tables import OpCost


@dataclass(slots=True)
class Counted:
    """What was counted. marks: FLOPs done when each child collective began."""

    cost: OpCost = field(default_factory=OpCost)
    marks: list[int] = field(default_factory=list)


_FREE = {torch.ops.aten._unsafe_view, torch.ops.aten.empty_like, torch.ops.aten.new_empty}
"""Operators that are no views by name and yet move nothing."""
_BATCHED = {torch.ops.aten.bmm, torch.ops.aten.baddbmm}


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.counted = Counted()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and asking torch to skip its compiler would import it first: seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.namespace != "c10d" and not func.is_view and func._overloadpacket not in _FREE:
            self._count(func._overloadpacket, args, kwargs or {}, out)
        return out

    def _count(self, packet: Any, args: Any, kwargs: Any, out: Any) -> None:
        cost, nbytes = self.counted.cost, sum(_nbytes(x) for x in (*args, out))
        cost.operators += 1
        cost.touched_bytes += nbytes
        if packet in flop_registry:
            flops = int(flop_registry[packet](*args, **kwargs, out_val=out))
            cost.flops += flops
            cost.matmuls += 1
            cost.matmul_bytes += nbytes
            if packet in _BATCHED:
                cost.batched_flops += flops
                cost.batched_bytes += nbytes


def _nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(_nbytes, value)) if isinstance(value, (tuple, list)) else 0


@contextmanager
def counting() -> Iterator[Counted]:
    """Counts what is executed inside, forward or backward, in this thread and in autograd's."""
    counter = _Counter()
    with counter:
        yield counter.counted
