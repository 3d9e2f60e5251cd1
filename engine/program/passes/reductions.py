"""Gradient reductions: over the data axis, over the tensor axis for replicated parameters, and between tied ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from engine.model.buckets import Bucket
from engine.program.kinds import Kind
from engine.program.program import Action

Needs = Callable[[str], Sequence[str]]


def reduce_after_backward(
    lane: Sequence[Action], buckets: Sequence[Bucket], needs: Needs, *, dp: int, zero: int, over_tensor: bool
) -> list[Action]:
    """Adds a REDUCE where a bucket's gradients are complete.

    ZeRO-0 and 1 keep full gradients, so once a step: after the bucket's last backward. ZeRO-2 and 3 keep shards, so
    after every micro-batch. over_tensor: sequence parallelism gives each tensor rank a partial gradient of the
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
            out += _reductions(bucket, action, dp, zero, over_tensor)
    return out


def _reductions(bucket: Bucket, after: Action, dp: int, zero: int, over_tensor: bool) -> list[Action]:
    k = after.microbatch if zero >= 2 else None
    out: list[Action] = []
    if over_tensor and bucket.has_replicated:
        out.append(Action(Kind.REDUCE, bucket.name, k, axis="tp", op="all_reduce"))
        if dp > 1:
            out.append(Action(Kind.WAIT, bucket.name, axis="tp"))
    if dp > 1:
        out.append(Action(Kind.REDUCE, bucket.name, k, axis="dp", op="reduce_scatter" if zero else "all_reduce"))
    return out


def bound_in_flight(lane: Sequence[Action], most: int) -> list[Action]:
    """At most `most` data-axis reductions outstanding: each holds a whole gradient buffer, dear under ZeRO-2 and 3."""
    out: list[Action] = []
    flying: list[str] = []
    for action in lane:
        out.append(action)
        if action.kind is Kind.REDUCE and action.axis == "dp":
            if action.unit in flying:  # its own backward has already waited for the one before
                flying.remove(action.unit)
            flying.append(action.unit)
            if len(flying) > most:
                out.append(Action(Kind.WAIT, flying.pop(0), axis="dp"))
    return out


def finish(buckets: Sequence[Bucket], *, dp: int, zero: int, tie: str | None, overlap: bool) -> list[Action]:
    """The end of a step: sum tied gradients, then the norm, and update what is used first in the next step first.

    What ZeRO-1 and 2 update in shards is gathered: under the updates that follow, or without overlap after them all.
    """
    out: list[Action] = []
    if tie:
        out += [Action(Kind.WAIT, tie, axis="dp")] if dp > 1 else []
        out.append(Action(Kind.REDUCE, tie, axis="tie", op="all_reduce"))
    names = [bucket.name for bucket in reversed(buckets)]
    updates = [Action(Kind.UPDATE, name) for name in names]
    gathers = [Action(Kind.GATHER, name, axis="dp", op="all_gather") for name in names if zero in (1, 2)]
    both = (
        [a for pair in zip(updates, gathers, strict=True) for a in pair] if gathers and overlap else updates + gathers
    )
    return [*out, Action(Kind.NORM), *both, Action(Kind.END)]
