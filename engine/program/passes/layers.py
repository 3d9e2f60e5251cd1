"""Layer expansion: a stage's forward becomes its units' forwards, its backward their backwards in reverse.

A source, such as an embedding, has no input to make a gradient for, so its backward is not split: it comes whole with
the input parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.unit_kinds import kind_of
from engine.program.kinds import Kind
from engine.program.program import Action, Lanes, expanded


def _part(kind: Kind, unit: str) -> Kind:
    return Kind.BACKWARD if kind_of(unit).source and kind is Kind.BACKWARD_INPUT else kind


def expand_units(lanes: Lanes, stages: Sequence[Sequence[str]]) -> Lanes:
    """stages[s] lists the units of virtual stage s in forward order."""

    def expand(action: Action) -> list[Action]:
        if not action.kind.is_pass:
            return [action]
        assert action.stage is not None
        kind, k, stage = action.kind, action.microbatch, action.stage
        units = stages[stage] if kind is Kind.FORWARD else tuple(reversed(stages[stage]))
        if kind is Kind.BACKWARD_WEIGHT:
            units = tuple(u for u in units if not kind_of(u).source)
        # not dataclasses.replace, which takes ten times as long, and large programs have hundreds of thousands
        return [Action(_part(kind, u), u, k, stage) for u in units]

    return expanded(lanes, expand)
