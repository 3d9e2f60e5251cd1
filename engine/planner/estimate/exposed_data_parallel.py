"""What of the data axis's communication is not hidden: gathers and reductions that computing waits for.

They share one stream and run under the computations that the program puts around them (`engine.passes`): a gather under
the computation before the one that needs it, a reduction under the backwards that follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job
from engine.planner.estimate.communication_times import MeshTimes
from engine.planner.estimate.distinct_stages import Held, LaneKind, in_use

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Passes:
    """Seconds of each unit's forward, backward and recomputation, tensor collectives included, [3 units, plans]."""

    forward: Floats
    backward: Floats
    recompute: Floats


@dataclass(frozen=True, eq=False)
class Exposed:
    """Seconds that a pipeline rank waits: in every micro-batch's forwards and backwards, after its last backward, and
    after the optimizer step. Arrays of [plans] or numbers."""

    forward: Floats | float = 0.0
    backward: Floats | float = 0.0
    end: Floats | float = 0.0
    after: float = 0.0


def exposed(job: Job, has: Held, kind: LaneKind, zero: int, times: MeshTimes, passes: Passes) -> Exposed:
    """Of a pipeline rank under a ZeRO stage of 0 to 3, with dp > 1."""
    size, overlap = job.precision, job.plan.overlap
    reduce = times.seconds("dp", "reduce_scatter" if zero else "all_reduce", has.padded * size.grad)
    gather = times.seconds("dp", "all_gather", has.padded * size.compute)
    after = float(gather.sum()) if zero in (1, 2) else 0.0
    ends = _after_backward(has, reduce, passes, 2 if zero >= 2 else len(reduce)) if overlap else reduce.sum()
    if zero < 2:
        return Exposed(end=ends, after=after)
    which = np.array([2] * kind.last + [1] * sum(kind.blocks) + [0] * kind.first)
    use = Passes(passes.forward[which], passes.backward[which], passes.recompute[which])
    reduced = in_use(job.model, kind, reduce)[:, None]
    if zero == 2:
        return Exposed(backward=_reductions(reduced, use, overlap), end=ends, after=after)
    gathered = in_use(job.model, kind, gather)[:, None]
    ahead = 1.0 if overlap and job.plan.prefetch else 0.0  # whether gathers run under anything
    forward = _forwards(gathered, reduced, use, ahead, len(kind.blocks))
    if job.plan.keep_gathered:
        return Exposed(backward=_reductions(reduced, use, overlap), end=ends + forward)
    return Exposed(forward, _backwards(gathered, reduced, use, ahead, overlap, len(kind.blocks)), ends)


def _after_backward(has: Held, reduce: Floats, passes: Passes, last: int) -> Floats:
    """From the last backward to the last reduction: whichever bucket is the first to keep the stream busy until then.

    last: how many buckets count; ZeRO-2 and 3 never have more than two on their way.
    """
    still = has.after @ (passes.backward + passes.recompute)
    queue = np.cumsum(reduce[::-1])[::-1]
    return np.asarray(np.maximum((queue[:, None] - still)[-last:].max(axis=0), 0))


def _reductions(reduced: Floats, use: Passes, overlap: bool) -> Floats:
    """ZeRO-2, a micro-batch: each unit's reduction runs under the next unit's backward, the last under a forward."""
    if not overlap:
        return np.asarray(reduced.sum(axis=0) + np.zeros(use.forward.shape[1]))
    under = use.recompute + use.backward
    under = np.concatenate([under[1:], use.forward.sum(axis=0, keepdims=True)])
    return np.asarray(np.maximum(reduced - under, 0).sum(axis=0))


def _forwards(gathered: Floats, reduced: Floats, use: Passes, ahead: float, chunks: int) -> Floats:
    """ZeRO-3: a gather under the forward of the unit before.

    With one chunk the first unit is the one that was used last, and its gather had to wait for the release. With more,
    the gather under the first forward of every chunk is behind the last reduction of the backwards before it.
    """
    hidden = ahead * use.forward[1:]  # units in the order of backward
    waits = np.maximum(gathered[:-1] - hidden, 0).sum(axis=0)
    if chunks == 1:
        return np.asarray(waits + gathered[-1])
    behind = np.maximum(reduced[1:] + gathered[:-1] - hidden, 0).sum(axis=0)
    first = np.maximum(gathered[-1] - ahead * use.backward[0], 0)
    return np.asarray(waits + (behind - waits) * chunks / len(use.forward) + first)


def _backwards(gathered: Floats, reduced: Floats, use: Passes, ahead: float, overlap: bool, chunks: int) -> Floats:
    """ZeRO-3: behind the reduction of the unit before the last, a gather under the backward of the last.

    The first backward of each chunk has no reduction before it.
    """
    hidden = ahead * use.backward[:-1]
    alone = np.maximum(gathered[1:] - hidden, 0).sum(axis=0)
    if not overlap:
        return np.asarray(alone + reduced.sum(axis=0) + gathered[0])
    before = np.concatenate([np.zeros((1, 1)), reduced[:-2]]) if len(reduced) > 1 else reduced[:0]
    queue = np.maximum((before if chunks == 1 else reduced[:-1]) - use.recompute[:-1], 0)
    behind = np.maximum(queue + gathered[1:] - hidden, 0).sum(axis=0)
    if chunks == 1:  # the first gather of the next forward is behind the last reduction
        return np.asarray(behind + reduced[-1] + gathered[0])
    first = np.maximum(gathered[0] - ahead * use.forward[0], 0)
    return np.asarray(behind + (alone - behind) * chunks / len(use.forward) + first)
