"""Streams: on which of its queues a rank does a recorded operation. Those of one are done one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from engine.job.registry import Registry


@dataclass(frozen=True)
class Stream:
    """A queue of operations, called `name` in recordings.

    axis: where operations on it count and are drawn: the axis of the mesh they go along, "tie" for the tied ends,
    "world" for all ranks, "" for computing; of a stream that leads to no other rank its own name. words: in pictures.
    """

    name: str
    axis: str
    words: str


COMPUTE_STREAM = "compute"
STREAMS: Registry[Stream] = Registry(
    "stream",
    Stream(COMPUTE_STREAM, "", "computing"),
    Stream("tp", "tp", "tensor"),
    Stream("dp", "dp", "data"),
    Stream("pp_act", "pp", "activations"),
    Stream("pp_grad", "pp", "gradients"),
    Stream("tie", "tie", "tied ends"),
    Stream("world", "world", "all ranks"),
)
