"""Full recomputation: a block keeps its input only and runs its forward again right before its backward.

(Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.program.kinds import Kind
from engine.program.program import Action, Lanes, expanded


def recompute_before_backward(lanes: Lanes, recomputes: Callable[[str], bool]) -> Lanes:
    """recomputes: which units are recomputed."""

    def expand(action: Action) -> tuple[Action, ...]:
        if action.kind.makes_gradient and recomputes(action.unit):
            return replace(action, kind=Kind.RECOMPUTE), action
        return (action,)

    return expanded(lanes, expand)
