"""Layer expansion: a stage's forward becomes its units' forwards, its backward their backwards in reverse.

The embedding has no input to make a gradient for, so its backward is not split: it comes whole with the input parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.program import PASSES, Action, Kind, Lanes


def _part(kind: Kind, unit: str) -> Kind:
    return Kind.BACKWARD if unit == "embedding" else kind


def expand_units(lanes: Lanes, stages: Sequence[Sequence[str]]) -> Lanes:
    """stages[s] lists the units of virtual stage s in forward order."""

    def expand(action: Action) -> list[Action]:
        if action.kind not in PASSES:
            return [action]
        assert action.stage is not None
        units = stages[action.stage]
        if action.kind is Kind.FORWARD:
            return [replace(action, unit=u) for u in units]
        if action.kind is Kind.BACKWARD_WEIGHT:
            return [replace(action, unit=u) for u in reversed(units) if u != "embedding"]
        return [replace(action, unit=u, kind=_part(action.kind, u)) for u in reversed(units)]

    return tuple(tuple(new for action in lane for new in expand(action)) for lane in lanes)
