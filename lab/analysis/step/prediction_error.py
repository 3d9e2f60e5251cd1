"""Where the difference between a measured step and its replay goes: real against predicted, part by part.

On every rank the whole step is split into what it worked on, what it waited for, and waiting for a core. The parts fill
the step on both sides, so their differences add up to the difference of the step's time, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.steps import recorded_steps
from engine.recording.tables import Recording
from lab.analysis.step.step_ops import NoStep, step_ops, window_of
from lab.analysis.step.time_breakdown import PART_NAMES, PARTS, step_parts
from lab.wording import longer, seconds

_WHY = {
    "layer": "the links, or the ranks that had to join, were not as fast as described",
    "core": "more threads wanted the processor's cores than there are, and a description leaves no room for others",
    "dependency": "a rank waits longer when another one works more slowly",
    "transfer": "the links are not as fast as described, or had no core to run on",
    "straggler": "ranks do not arrive together when one of them is held up",
    "done": "the ranks do not end together",
    "host": "Python, the recorder, memory from the system and the scheduler take what the description leaves out",
}
_PACE = "the operators did not run at the speed that the cluster describes"


@dataclass(frozen=True)
class Part:
    """A part of the step in ns, of one rank or of all together."""

    name: str
    measured: int
    predicted: int

    @property
    def difference(self) -> int:
        return self.measured - self.predicted


@dataclass(frozen=True)
class Gap:
    """A measured step and its replay. measured, predicted: ns of the step, first start to last end over all ranks.

    by_rank: for each rank the `PARTS`, in that order; their sums are the step's two times.
    """

    step: int
    measured: int
    predicted: int
    by_rank: Mapping[int, tuple[Part, ...]]

    @property
    def difference(self) -> int:
        """ns that the step took longer than predicted; negative if it was faster."""
        return self.measured - self.predicted

    @property
    def error(self) -> float:
        """How far the prediction is off: (predicted − measured) ÷ measured."""
        return -self.difference / self.measured if self.measured else 0.0

    @cached_property
    def total(self) -> tuple[Part, ...]:
        """The parts of all ranks together; their differences add up to ranks × `difference`."""
        columns = zip(*self.by_rank.values(), strict=True)
        return tuple(
            Part(c[0].name, sum(part.measured for part in c), sum(part.predicted for part in c)) for c in columns
        )

    def sentence(self) -> str:
        """What differs most, in words. Times of parts are means over the ranks."""
        whole = f"The step took {seconds(self.measured / 1e9)} where {seconds(self.predicted / 1e9)} were predicted"
        most = max(self.total, key=lambda part: abs(part.difference))
        if not most.difference:
            return f"{whole}: no part of it differs."
        count = len(self.by_rank) * 1e9
        each = " on average over the ranks" if len(self.by_rank) > 1 else ""
        took = f"{PART_NAMES[most.name]} took {seconds(most.measured / count)} where"
        expected = f"{seconds(most.predicted / count)} were predicted" if most.predicted else "none was predicted"
        way = longer(most.difference / count)
        return f"{whole}. Largest part: {took} {expected}{each}, {way}: {_WHY.get(most.name, _PACE)}."


def gap(measured: Recording, predicted: Recording, step: int) -> Gap:
    """Where the difference between `step` as measured and as predicted goes.

    predicted: a replay of the same job; it may hold another step, all steps do the same. Ranks that it does not record
    are those that stand for them. Raises `NoStep` if either has no step to compare.
    """
    ours, theirs = step_ops(measured, step), step_ops(predicted, _step_of(predicted, step))
    mine, other = step_parts(ours), step_parts(theirs)
    by_rank = {
        rank: tuple(Part(name, mine[rank][name], other[theirs.recorded(rank)][name]) for name in PARTS)
        for rank in ours.ranks
    }
    return Gap(step, _length(ours), _length(theirs), by_rank)


def _step_of(predicted: Recording, step: int) -> int:
    steps = recorded_steps(predicted)
    if not steps:
        raise NoStep("the replay holds no step.")
    return step if step in steps else steps[0]


def _length(ops: StepRows) -> int:
    start, end = window_of(ops)
    return end - start
