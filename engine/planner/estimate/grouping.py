"""Which computations of a stage an outline keeps together as one, and what each of its computations is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from engine.job.job import Job
from engine.model.units import recomputes
from engine.planner.estimate.events import HOST, UNITS, WORKS, Counts
from engine.program.kinds import Kind
from engine.program.passes.layers import unit_actions
from engine.program.program import Action, Lanes, expanded


@dataclass(frozen=True, eq=False)
class Grouping:
    """Leaves a stage's computations together where its units need not be told apart: nothing is gathered, and its
    gradients are reduced after the last micro-batch alone."""

    job: Job

    @cached_property
    def _unit_by_unit(self) -> bool:
        return self.job.effective_zero >= 2

    def together(self, action: Action) -> bool:
        """Whether the action stands for all units of its stage."""
        if self._unit_by_unit or action.kind not in WORKS:
            return False
        return action.kind is Kind.FORWARD or action.microbatch != self.job.plan.microbatches - 1

    def expand(self, lanes: Lanes, units_of_stages: Sequence[Sequence[str]]) -> Lanes:
        """`engine.program.passes.layers.expand_units` for what is not together; else the unit that takes the stage's
        message stands for the whole stage."""
        first = [units[:1] for units in units_of_stages]
        last = [units[-1:] for units in units_of_stages]

        def expand(action: Action) -> Sequence[Action]:
            units = units_of_stages if not self.together(action) else first if action.kind is Kind.FORWARD else last
            return unit_actions(action, () if action.stage is None else units[action.stage])

        return expanded(lanes, expand)

    def counts(self, action: Action, units: Sequence[str]) -> Counts:
        """How often the computation has each of [UNITS, WORKS], and how many rows the host starts.

        units: of its stage.
        """
        out = [0] * (HOST + 1)
        out[HOST] = 1
        if not self.together(action) or action.kind is Kind.RECOMPUTE:
            out[place_of(action.unit, action.kind)] = 1
            return tuple(out)
        for unit in units:
            whole = unit == "embedding" and action.kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
            if whole and action.kind is Kind.BACKWARD_WEIGHT:
                continue  # went whole with the input parts
            out[place_of(unit, Kind.BACKWARD if whole else action.kind)] += 1
            backward = action.kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT)
            if backward and unit != action.unit and recomputes(self.job, unit):
                out[place_of(unit, Kind.RECOMPUTE)] += 1
        out[HOST] = sum(out[:HOST])
        return tuple(out)


def place_of(unit: str, kind: Kind) -> int:
    """Of a computation among [UNITS, WORKS]."""
    return unit_place(unit) * len(WORKS) + WORKS.index(kind)


def unit_place(unit: str) -> int:
    """Of a unit's kind in UNITS."""
    return 1 if unit.startswith("block") else UNITS.index(unit)
