"""Layer expansion: a stage's forward becomes its units' forwards, its backward their backwards in reverse.

A source, such as an embedding, has no input to make a gradient for, so its backward is not split: it comes whole with
the input parts.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.unit_kinds import kind_of
from engine.program.kinds import Kind
from engine.program.program import Action, Lanes, expanded


def unit_actions(action: Action, units: Sequence[str]) -> Sequence[Action]:
    """What a stage does, unit by unit; an action that is no pass of a stage, as it is. units: of its stage, in forward
    order.
    """
    if not action.kind.is_pass:
        return (action,)
    kind, k, stage = action.kind, action.microbatch, action.stage
    if kind is not Kind.FORWARD:
        units = units[::-1]
    if kind is Kind.BACKWARD_WEIGHT:
        units = [u for u in units if not kind_of(u).source]
    # not dataclasses.replace, which takes ten times as long, and large programs have hundreds of thousands
    return [Action(_part(kind, u), u, k, stage) for u in units]


def _part(kind: Kind, unit: str) -> Kind:
    return Kind.BACKWARD if kind is Kind.BACKWARD_INPUT and kind_of(unit).source else kind


def expand_units(lanes: Lanes, stages: Sequence[Sequence[str]]) -> Lanes:
    """stages[s] lists the units of virtual stage s in forward order."""
    return expanded(lanes, lambda action: unit_actions(action, () if action.stage is None else stages[action.stage]))
