"""A timeline in words: for people who cannot see it, or see one for the first time."""

from __future__ import annotations

from collections.abc import Sequence

from lab.analysis.idle import busy
from lab.analysis.intervals import length
from lab.figures.lanes import Lanes
from lab.wording import AXIS_NAMES, percent, seconds


def how_to_read(axes: Sequence[str], overlaid: bool = False) -> str:
    """What the picture's marks mean."""
    named = " and ".join(AXIS_NAMES[axis] for axis in axes)
    thin = f" Below it, thin lanes show communication that runs meanwhile ({named} axis)." if axes else ""
    outlined = " Outlines are what the replay says it would do." if overlaid else ""
    stream = "One thick lane a rank: what its compute stream did; hatched is idle."
    return f"{stream}{thin}{outlined} Numbers are micro-batches."


def summary(laid: Sequence[Lanes]) -> str:
    """Step, ranks and bubble of what was measured, and of the prediction if there is one."""
    first, *others = laid
    count = sum(first.ops.weight[rank] for rank in first.order)
    ranks = f"{count:,} ranks" if count > 1 else "1 rank"
    said = f"{ranks}, {seconds(first.milliseconds / 1e3)}, of which {percent(_idle_share(first))} idle."
    for lanes in others:
        said += f" Predicted: {seconds(lanes.milliseconds / 1e3)}, of which {percent(_idle_share(lanes))} idle."
    rank, idle = max(_idle(first).items(), key=lambda item: item[1])
    longest = f" {first.ops.rank_names[rank].capitalize()} stands idle longest, {seconds(idle / 1e9)}."
    return f"Timeline of step {int(first.ops.table['step'][0].as_py())}: {said}{longest}"


def _idle(lanes: Lanes) -> dict[int, int]:
    """ns each rank stands idle."""
    whole = lanes.end - lanes.origin
    return {rank: whole - length(busy(lanes.ops, rows)) for rank, rows in lanes.ops.by_rank()}


def _idle_share(lanes: Lanes) -> float:
    whole = (lanes.end - lanes.origin) * sum(lanes.ops.weight[rank] for rank in lanes.order)
    idle = sum(ns * lanes.ops.weight[rank] for rank, ns in _idle(lanes).items())
    return idle / whole if whole else 0.0
