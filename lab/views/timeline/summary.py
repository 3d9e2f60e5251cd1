"""A timeline in words: for people who cannot see it, or see one for the first time."""

from __future__ import annotations

from collections.abc import Sequence

from lab.analysis.step.idle import Idle
from lab.views.figures.timeline.lanes import Lanes
from lab.wording import axis_name, percent, seconds


def how_to_read(axes: Sequence[str], overlaid: bool = False) -> str:
    """What the picture's marks mean."""
    named = " and ".join(axis_name(axis) for axis in axes)
    thin = f" Below it, thin lanes show communication that runs meanwhile ({named} axis)." if axes else ""
    outlined = " Outlines are what the replay says it would compute and when." if overlaid else ""
    stream = "One thick lane a rank: what its compute stream did; hatched is idle."
    return f"{stream}{thin}{outlined} Numbers are micro-batches."


def summary(laid: Sequence[Lanes], idle: Sequence[Sequence[Idle]]) -> str:
    """Step, ranks and bubble of what was measured, and of the prediction if there is one. idle: of each."""
    first, *others = laid
    waited, *foretold = (_by_rank(lanes, spans) for lanes, spans in zip(laid, idle, strict=True))
    count = sum(first.ops.weight[rank] for rank in first.order)
    ranks = f"{count:,} ranks" if count > 1 else "1 rank"
    said = f"{ranks}, {seconds(first.milliseconds / 1e3)}, of which {percent(_share(first, waited))} idle."
    for lanes, found in zip(others, foretold, strict=True):
        said += f" Predicted: {seconds(lanes.milliseconds / 1e3)}, of which {percent(_share(lanes, found))} idle."
    rank, most = max(waited.items(), key=lambda item: item[1])
    longest = f" {first.ops.rank_names[rank].capitalize()} stands idle longest, {seconds(most / 1e9)}."
    return f"Timeline of step {int(first.ops.table['step'][0].as_py())}: {said}{longest}"


def _by_rank(lanes: Lanes, idle: Sequence[Idle]) -> dict[int, int]:
    """ns each rank stands idle."""
    found = dict.fromkeys(lanes.order, 0)
    for span in idle:
        found[span.rank] += span.end_ns - span.start_ns
    return found


def _share(lanes: Lanes, idle: dict[int, int]) -> float:
    whole = (lanes.end - lanes.origin) * sum(lanes.ops.weight[rank] for rank in lanes.order)
    return sum(ns * lanes.ops.weight[rank] for rank, ns in idle.items()) / whole if whole else 0.0
