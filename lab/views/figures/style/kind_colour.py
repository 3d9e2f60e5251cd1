"""The colour of each kind of computation where schedules are drawn."""

from __future__ import annotations

from engine.job.errors import Unknown
from engine.program.kinds import ROLES, Kind
from lab.views.figures.style.palette import Palette


def kind_colour(kind: Kind, p: Palette) -> str:
    """By its role; a forward that is run again has one of its own. Raises `Unknown` for a role that there is not."""
    if kind is Kind.RECOMPUTE:
        return p.sky
    colours = dict(zip(ROLES, (p.blue, p.orange, p.violet, p.green), strict=True))
    if kind.role not in colours:
        raise Unknown("role of an action kind", kind.role, ROLES)
    return colours[kind.role]
