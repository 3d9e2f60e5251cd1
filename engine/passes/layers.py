"""Layer expansion: a stage's forward becomes its units' forwards, its backward their backwards in reverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.program import Action, Kind, Lanes


def expand_units(lanes: Lanes, stages: Sequence[Sequence[str]]) -> Lanes:
    """stages[s] lists the units of virtual stage s in forward order."""

    def expand(action: Action) -> list[Action]:
        if action.kind not in (Kind.FORWARD, Kind.BACKWARD):
            return [action]
        assert action.stage is not None
        units = stages[action.stage]
        return [replace(action, unit=u) for u in (units if action.kind is Kind.FORWARD else reversed(units))]

    return tuple(tuple(new for action in lane for new in expand(action)) for lane in lanes)
