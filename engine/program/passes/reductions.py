"""Gradient reductions: along the axes that each bucket names, one after the other, and between tied ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

from engine.model.buckets import Bucket
from engine.program.kinds import Kind
from engine.program.program import Action

Needs = Callable[[str], Sequence[str]]


def reduce_after_backward(
    lane: Sequence[Action], buckets: Sequence[Bucket], needs: Needs, *, zero: int
) -> list[Action]:
    """Adds a REDUCE where a bucket's gradients are complete.

    ZeRO-0 and 1 keep full gradients, so once a step: after the bucket's last backward. ZeRO-2 and 3 keep shards, so
    after every micro-batch; what else the shards are summed along follows once a step, as in hybrid sharding (Zhao et
    al. 2023, PyTorch FSDP, section 3.2.2). Sequence parallelism gives each tensor rank a partial gradient of the
    parameters it holds whole, to be summed first (Korthikanti et al. 2022, section 4.2.2).
    """
    home = {unit: bucket for bucket in buckets for unit in bucket.units}
    users: dict[str, dict[int | None, int]] = defaultdict(dict)  # bucket → micro-batch → its last backward
    for i, action in enumerate(lane):
        if action.kind.adds_gradient:
            for owner in needs(action.unit):
                users[home[owner].name][action.microbatch if zero >= 2 else None] = i
    done_at: dict[int, list[Bucket]] = defaultdict(list)
    for bucket in buckets:
        for i in users[bucket.name].values():
            done_at[i].append(bucket)
    out: list[Action] = []
    for i, action in enumerate(lane):
        out.append(action)
        for bucket in done_at[i]:
            out += _reductions(bucket, action.microbatch if zero >= 2 else None, i == max(users[bucket.name].values()))
    return out


def _reductions(bucket: Bucket, k: int | None, last: bool) -> list[Action]:
    """One along each axis, each after the one before. last: of the step, so that no more comes to a shard."""
    out: list[Action] = []
    for axis in bucket.sum_axes:
        if out:
            out.append(Action(Kind.WAIT, bucket.name, axis=out[-1].axis))
        cuts = axis == bucket.shard_axis
        out.append(Action(Kind.REDUCE, bucket.name, k, axis=axis, op="reduce_scatter" if cuts else "all_reduce"))
        if cuts and not last:
            break
        k = None if cuts else k
    return out


def bound_in_flight(lane: Sequence[Action], axes: Collection[str], most: int) -> list[Action]:
    """At most `most` reductions along `axes` outstanding: each holds a gradient buffer, dear under ZeRO-2 and 3."""
    out: list[Action] = []
    flying: list[tuple[str, str]] = []
    for action in lane:
        what = (action.unit, action.axis)
        if action.kind is Kind.WAIT and action.axis in axes:
            if what not in flying:
                continue  # it has been waited for
            flying.remove(what)
        out.append(action)
        if action.kind is Kind.REDUCE and action.axis in axes:
            if what in flying:  # its own backward has already waited for the one before
                flying.remove(what)
            flying.append(what)
            if len(flying) > most:
                unit, axis = flying.pop(0)
                out.append(Action(Kind.WAIT, unit, axis=axis))
    return out


def finish(buckets: Sequence[Bucket], *, zero: int, tie: str | None, overlap: bool) -> list[Action]:
    """The end of a step: sum tied gradients, then the norm, and update what is used first in the next step first.

    What ZeRO-1 and 2 update in shards is gathered: under the updates that follow, or without overlap after them all.
    """
    out: list[Action] = []
    if tie:
        tied = next(bucket for bucket in buckets if bucket.name == tie)
        out += [Action(Kind.WAIT, tie, axis=axis) for axis in tied.reduce_axes[-1:]]
        out.append(Action(Kind.REDUCE, tie, axis="tie", op="all_reduce"))
    last_first = buckets[::-1]
    updates = [Action(Kind.UPDATE, bucket.name) for bucket in last_first]
    gathers = [Action(Kind.GATHER, b.name, axis=b.shard_axis, op="all_gather") for b in last_first if zero in (1, 2)]
    both = (
        [a for pair in zip(updates, gathers, strict=True) for a in pair] if gathers and overlap else updates + gathers
    )
    return [*out, Action(Kind.NORM), *both, Action(Kind.END)]
