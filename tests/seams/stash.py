"""An action nobody else has: each bucket's first moments copied to another memory until the end of the step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from engine.communication.comm import Handle
from engine.execution.runtime import HANDLERS, Handler, Runtime
from engine.execution.step_state import StepState
from engine.job.job import Job
from engine.model.buckets import buckets_of_pp_rank
from engine.program.compile import PASSES, LanePass
from engine.program.kinds import KINDS, Booking, Kind, Sizes
from engine.program.program import Action
from engine.program.streams import STREAMS, Stream

FP32 = 4


def _kept(sizes: Sizes, a: Action) -> Iterable[Booking]:
    yield "buffers", sizes.named[a.unit].shard * FP32


def _given_back(sizes: Sizes, a: Action) -> Iterable[Booking]:
    yield "buffers", -sizes.named[a.unit].shard * FP32


STREAMS.add(Stream("host", "host", "host memory"))
STASH = KINDS.add(
    Kind(
        name="stash", words="stashing optimizer state", acts_on="bucket", role="step", moves="copy", stream="host",
        rows="alone", books=_kept, lands=_given_back,
    )
)  # fmt: skip


def stash(runtime: Runtime, a: Action, state: StepState) -> Handle:
    moments = runtime.buckets[a.unit].m
    elsewhere = torch.empty_like(moments)
    runtime.ledger.add("buffers", elsewhere.nbytes)
    handle = runtime.comm.copy(elsewhere, moments, a)
    handle.after.append(lambda: runtime.ledger.add("buffers", -elsewhere.nbytes))
    return handle


HANDLERS.add(Handler("stash", stash))


def _stashed(job: Job, pp_rank: int, lane: Sequence[Action]) -> list[Action]:
    """Each bucket's after its last action."""
    after = {max((i for i, a in enumerate(lane) if a.unit == b.name), default=len(lane) - 1): b.name
             for b in buckets_of_pp_rank(job, pp_rank)}  # fmt: skip
    stashes = {i: [Action(STASH, name)] for i, name in after.items()}
    return [new for i, a in enumerate(lane) for new in (a, *stashes.get(i, []))]


PASSES.add(LanePass("stash", _stashed))
