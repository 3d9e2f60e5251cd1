"""What an answer on several ranks may send with: gloo between real processes, every byte of it counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from engine.communication.groups import meet
from engine.processes.root_cause import is_communication_error
from engine.processes.worker_process import MemberContext
from lab.learning.exercises.exercise import described
from lab.learning.exercises.grader_process import PeerLost

TIMEOUT = timedelta(seconds=15)
MOST_DIMS = 8


@contextmanager
def connected(context: MemberContext) -> Iterator[None]:
    """All members of the run as one gloo group."""
    context.status.waiting()
    meet(context.rendezvous, context.index, context.size, TIMEOUT)
    context.status.computing()
    yield  # the process ends without taking the group down, which can wait for peers that are gone


class Exchange:
    """`exchange(data, to, source)`: sends `data` to one rank while receiving from another; what was received.

    rounds: calls so far; sent: elements sent so far; targets: ranks sent to.
    """

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self.rounds, self.sent = 0, 0
        self.targets: set[int] = set()

    def __call__(self, data: Any, to: Any, source: Any) -> torch.Tensor:
        self._check(data, to, source)
        number, status = self.rounds, self._context.status
        status.action(f"exchange {number}: to rank {to}, from rank {source}".encode())
        status.waiting()
        try:
            received = _swap(data.detach().contiguous(), to, source)
        except RuntimeError as error:
            if is_communication_error(error):
                place = f"rank {self._context.index} of {self._context.size} is in exchange {number}"
                ends = f"to rank {to}, from rank {source}"
                raise PeerLost(f"The exchanges do not match: {place}, {ends}, and a rank has ended.") from error
            raise
        status.computing()
        self.rounds += 1
        self.sent += data.numel()
        self.targets.add(to)
        return received

    def _check(self, data: Any, to: Any, source: Any) -> None:
        me, ranks = self._context.index, self._context.size
        if not isinstance(data, torch.Tensor):
            raise TypeError(f"exchange sends a tensor, and was given {described(data)}")
        if data.dtype != torch.float32 or data.dim() > MOST_DIMS:
            raise TypeError(f"exchange sends float32 here, and was given {data.dtype} of shape {tuple(data.shape)}")
        for name, rank in (("to", to), ("source", source)):
            if not isinstance(rank, int) or not 0 <= rank < ranks:
                raise ValueError(f"{name}={rank!r} is no rank: the ranks are 0 to {ranks - 1}")
            if rank == me:
                raise ValueError(f"{name}={rank} is this rank itself")


def _swap(data: torch.Tensor, to: int, source: int) -> torch.Tensor:
    """Shapes first, so that the two ends need not know each other's; both directions at once, so that none blocks."""
    mine = torch.zeros(MOST_DIMS + 1, dtype=torch.int64)
    mine[: data.dim() + 1] = torch.tensor([data.dim(), *data.shape])
    theirs = torch.zeros_like(mine)
    _both(mine, theirs, to, source)
    received = torch.empty([int(n) for n in theirs[1 : int(theirs[0]) + 1]], dtype=data.dtype)
    _both(data, received, to, source)
    return received


def _both(out: torch.Tensor, into: torch.Tensor, to: int, source: int) -> None:
    sending, receiving = dist.isend(out, to), dist.irecv(into, source)
    for work in (receiving, sending):
        if work is not None:
            work.wait()


class AllReduce:
    """`all_reduce(tensor)`: the sum over all ranks, as a new tensor. calls: how often it was asked for."""

    def __init__(self, context: MemberContext) -> None:
        self._context = context
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, tensor: Any) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"all_reduce sums a tensor, and was given {described(tensor)}")
        shape, status = tuple(tensor.shape), self._context.status
        status.action(f"all_reduce {len(self.shapes)} of shape {shape}".encode())
        status.waiting()
        try:
            everyone: list[Any] = [None] * self._context.size
            dist.all_gather_object(everyone, shape)  # ranks that differ would abort gloo
            if len(set(everyone)) > 1:
                raise ValueError(f"the ranks ask all_reduce for different shapes: {', '.join(map(str, everyone))}")
            total = tensor.detach().clone().contiguous()
            dist.all_reduce(total)
        except RuntimeError as error:
            if is_communication_error(error):
                place = f"rank {self._context.index} of {self._context.size} is in all_reduce of shape {shape}"
                raise PeerLost(f"The calls do not match: {place}, and a rank has ended.") from error
            raise
        status.computing()
        self.shapes.append(shape)
        return total
