"""All communication of a rank goes through here: three collectives and messages, each written down as it happens.

`torch.distributed` moves the data; this file adds the names, the byte counts and the times. Of what a rank
runs, only `engine.communication.groups` calls torch.distributed besides, to connect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from engine.cluster.operations import COPY, MESSAGE
from engine.communication.collective_bytes import logical_bytes, wire_bytes
from engine.program.kinds import COLLECTIVE, Kind
from engine.program.program import Action
from engine.program.streams import COMPUTE_STREAM
from engine.recording.ledger import storage_identity
from engine.recording.recorder import Recorder
from engine.recording.tables import Op, OpCost

BLOCKED_NS = 50_000  # a wait shorter than this found its message already there


@dataclass
class Handle:
    """Communication under way. `Comm.wait` blocks until it is done and records the wait, `Comm.now` inside a layer."""

    row: Op
    work: dist.Work
    keep: Sequence[torch.Tensor] = ()
    after: list[Callable[[], None]] = field(default_factory=list)
    done: bool = False

    def wait(self, recorder: Recorder, waiting: Callable[[], None], computing: Callable[[], None]) -> None:
        """Blocks until it is done and writes the wait as a row; does nothing if it is done already.

        waiting, computing: called as the blocking begins and ends.
        """
        if self.done:
            return
        wait = recorder.add(COMPUTE_STREAM, Kind.WAIT.name, f"wait {self.row.name}")
        wait.ref = self.row.seq
        waiting()
        self.work.wait()
        recorder.synchronize()  # under NCCL a wait only queues
        computing()
        wait.end_ns = time.perf_counter_ns()
        self.row.end_ns = self.row.end_ns or self._arrival(wait)
        self.finish()

    def finish(self) -> None:
        """What has to follow once the data is there."""
        for then in self.after:
            then()
        self.done, self.keep = True, ()

    def _arrival(self, wait: Op) -> int:
        """Messages have no completion time of their own: they were there at the latest when the wait returned."""
        return wait.end_ns if wait.end_ns - wait.start_ns > BLOCKED_NS else wait.start_ns


class Done(dist.Work):
    """Work that was over before it began."""

    def wait(self, *_: Any) -> bool:
        """True, at once."""
        return True

    def get_future(self) -> Any:
        """A future that is done, with None as its value."""
        future: torch.futures.Future[None] = torch.futures.Future()
        future.set_result(None)
        return future


@dataclass(frozen=True)
class Group:
    """The ranks this rank talks with along one axis. `process_group` is None for a group of one."""

    axis: str
    ranks: tuple[int, ...]
    process_group: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        return len(self.ranks)


class Comm:
    """The communication of one rank over its groups, by axis name."""

    def __init__(self, rank: int, backend: str, groups: dict[str, Group], recorder: Recorder) -> None:
        self.rank, self.backend, self.groups, self.recorder = rank, backend, groups, recorder
        self.on_wait: Callable[[], None] = lambda: None
        self.on_resume: Callable[[], None] = lambda: None

    def all_reduce(
        self,
        tensor: torch.Tensor,
        axis: str,
        *,
        maximum: bool = False,
        stream: str = "",
        action: Action | None = None,
    ) -> Handle:
        """Starts to replace `tensor` by the sum (or maximum) over the group, on every member."""
        row = self._row("all_reduce", axis, tensor, stream, action)
        op = dist.ReduceOp.MAX if maximum else dist.ReduceOp.SUM
        return Handle(row, self._start(axis, dist.all_reduce, tensor, op), (tensor,))

    def reduce_scatter(self, out: torch.Tensor, full: torch.Tensor, axis: str, action: Action | None = None) -> Handle:
        """Starts to put into `out` this rank's slice (along dim 0) of the sum of `full`, which is used up.

        gloo has no reduce-scatter: torch's own all-reduces a copy and keeps a slice of it. The same is done here in
        place, without the copy.
        """
        row = self._row("reduce_scatter", axis, full, "", action)
        if self.backend != "gloo":
            return Handle(row, self._start(axis, dist.reduce_scatter_single, out, full, dist.ReduceOp.SUM), (out, full))
        handle = Handle(row, self._start(axis, dist.all_reduce, full), (out, full))
        mine = full.chunk(self.size(axis))[self.index(axis)]
        if storage_identity(out) != storage_identity(mine) or out.storage_offset() != mine.storage_offset():
            handle.after.append(lambda: _copy(out, mine))
        return handle

    def all_gather(self, out: torch.Tensor, shard: torch.Tensor, axis: str, action: Action | None = None) -> Handle:
        """Starts to put into `out` the members' shards, one after the other along dim 0."""
        row = self._row("all_gather", axis, out, "", action)
        return Handle(row, self._start(axis, dist.all_gather_single, out, shard), (out, shard))

    def send(self, tensor: torch.Tensor, peer: int, tag: int, stream: str, action: Action) -> Handle:
        """Starts to send to world rank `peer`. The tensor must not change until the handle was waited for."""
        row = self._message(tensor, peer, stream, action)
        work = dist.isend(tensor, peer, self._message_group(stream, self.rank, peer), tag=tag)
        assert work is not None
        return Handle(row, work, (tensor,))

    def recv(self, buffer: torch.Tensor, peer: int, tag: int, stream: str, action: Action) -> Handle:
        """Starts to receive from world rank `peer` into `buffer`."""
        row = self._message(buffer, peer, stream, action)
        work = dist.irecv(buffer, peer, self._message_group(stream, peer, self.rank), tag=tag)
        assert work is not None
        return Handle(row, work, (buffer,))

    def copy(self, out: torch.Tensor, source: torch.Tensor, action: Action) -> Handle:
        """Copies `source` to `out`, in another memory of this rank, on the stream of the action's kind."""
        row = self.recorder.add(action.kind.stream, action.kind.name, str(action), action)
        row.op, row.peers = COPY, (self.rank,)
        row.cost = OpCost(touched_bytes=source.nbytes + out.nbytes, operators=1)
        out.copy_(source)
        self.recorder.synchronize()
        row.end_ns = time.perf_counter_ns()
        return Handle(row, Done(), (out, source))

    def wait(self, handle: Handle) -> None:
        """Blocks until `handle` is done; the time blocked becomes a row of its own."""
        handle.wait(self.recorder, self.on_wait, self.on_resume)

    def now(self, handle: Handle) -> None:
        """Blocks until `handle` is done, inside a computation: the collective's own row holds the time."""
        self.on_wait()
        handle.work.wait()
        self.recorder.synchronize()
        self.on_resume()
        handle.finish()
        handle.row.end_ns = handle.row.end_ns or time.perf_counter_ns()

    def forget(self, handle: Handle) -> None:
        """Lets go of a send that is known to have arrived; does not block, and records no wait."""
        handle.work.wait()
        handle.row.end_ns = handle.row.end_ns or time.perf_counter_ns()
        handle.finish()

    def size(self, axis: str) -> int:
        """Ranks in this rank's group along `axis`."""
        return self.groups[axis].size

    def index(self, axis: str) -> int:
        """This rank's place in its group along `axis`."""
        return self.groups[axis].ranks.index(self.rank)

    def _start(self, axis: str, collective: Callable[..., dist.Work | None], *tensors_and_op: Any) -> dist.Work:
        work = collective(*tensors_and_op, group=self._group(axis), async_op=True)
        assert work is not None
        return work

    def _group(self, axis: str) -> dist.ProcessGroup:
        group = self.groups[axis].process_group
        assert group is not None, f"communication over {axis}, which has one rank"
        return group

    def _message_group(self, stream: str, source: int, to: int) -> dist.ProcessGroup:
        """NCCL runs a group's messages in order, so each kind and direction has a group of its own there."""
        if self.backend == "gloo":
            return self._group("pp")
        return self._group(f"{stream}_{'down' if source < to else 'up'}")

    def _row(self, op: str, axis: str, tensor: torch.Tensor, stream: str, action: Action | None) -> Op:
        if action is None:
            row = self.recorder.add_child(stream or axis, COLLECTIVE, op)
        else:
            row = self.recorder.add(stream or axis, action.kind.name, str(action), action)
        nbytes, n = tensor.numel() * tensor.element_size(), self.groups[axis].size
        row.op, row.group, row.peers = op, stream or axis, self.groups[axis].ranks
        row.cost.logical_bytes = logical_bytes(op, n, nbytes)
        row.cost.wire_bytes = wire_bytes(op, n, nbytes, self.backend)
        return row

    def _message(self, tensor: torch.Tensor, peer: int, stream: str, action: Action) -> Op:
        row = self.recorder.add(stream, action.kind.name, str(action), action)
        row.op, row.group, row.peers = MESSAGE, "pp", (self.rank, peer)
        row.cost.logical_bytes = row.cost.wire_bytes = tensor.numel() * tensor.element_size()
        return row


def _copy(out: torch.Tensor, part: torch.Tensor) -> None:
    out.copy_(part)


def stamp_end(handle: Handle) -> Handle:
    """Lets the backend itself note when an overlapped collective ended, not the later wait."""

    def stamp(_: object) -> None:
        handle.row.end_ns = time.perf_counter_ns()

    handle.work.get_future().add_done_callback(stamp)
    return handle
