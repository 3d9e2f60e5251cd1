"""Operations: what ranks do with one another, by the name that it has in programs and recordings."""

from __future__ import annotations

from dataclasses import dataclass

from engine.job.registry import Registry


@dataclass(frozen=True)
class Operation:
    """A collective, a message, or a copy from one memory of a rank to another.

    rounds: of a collective, how often the ring algorithm sends (n−1)/n of the full tensor on each of n ranks; 0 for
    what is no collective. kernel: NCCL's name for it in traces.
    """

    name: str
    rounds: int
    kernel: str = ""


MESSAGE, COPY = "message", "copy"
OPERATIONS: Registry[Operation] = Registry(
    "operation",
    Operation(MESSAGE, 0, "SendRecv"),
    Operation("all_reduce", 2, "AllReduce"),
    Operation("reduce_scatter", 1, "ReduceScatter"),
    Operation("all_gather", 1, "AllGather"),
    Operation("all_to_all", 1, "AllToAll"),
    Operation(COPY, 0),
)
