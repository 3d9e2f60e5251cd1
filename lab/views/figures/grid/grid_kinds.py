"""Kinds of ranks in the grid: by the node that holds them, and by what they do at a moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from engine.program.kinds import COLLECTIVE, KINDS, Kind
from lab.analysis.step.activity import Activity
from lab.views.figures.grid.grid_ranks import Ball, BallKind
from lab.views.figures.style.palette import Palette
from lab.views.figures.timeline.lanes import CATEGORIES, LABELS
from lab.wording import axis_name

_SYMBOLS = ("circle", "square", "diamond", "cross", "x")


def node_kinds(nodes: Sequence[int], p: Palette) -> list[BallKind]:
    """A colour and a symbol for each node; neighbours differ in both, and pairs repeat only every 35 nodes."""
    colours = p.every[:-1]
    return [BallKind(f"node {n}", colours[n % len(colours)], _SYMBOLS[n % len(_SYMBOLS)]) for n in nodes]


def activity_kinds(p: Palette) -> list[BallKind]:
    """The timeline's colours."""
    colours = dict(zip(CATEGORIES, p.every, strict=True))
    return [
        BallKind("forward", colours["forward"], "circle"),
        BallKind("forward again", colours["forward"], "circle", hollow=True),
        BallKind("backward", colours["backward"], "square"),
        BallKind("weight gradients", colours["weight"], "diamond"),
        BallKind("collective in a layer", colours["tensor"], "cross"),
        BallKind("optimizer step", colours["step"], "diamond"),
        BallKind("idle", colours["idle"], "square", hollow=True),
    ]


def kind_of(activity: Activity) -> str:
    """The entry of the legend under which an activity is drawn. Raises `Unknown`."""
    if activity.kind == COLLECTIVE:
        return "collective in a layer"
    if activity.kind == "idle":
        return "idle"
    kind = KINDS[activity.kind]
    return kind.words if kind is Kind.RECOMPUTE else LABELS[kind.role]


def label_of(activity: Activity) -> str:
    """ "forward mb 2", "tensor all-reduce", "idle"."""
    if activity.kind == COLLECTIVE:
        return f"{axis_name(activity.axis)} {activity.name.replace('_', '-')}"
    micro = f" mb {activity.microbatch}" if activity.microbatch >= 0 else ""
    return f"{kind_of(activity)}{micro}"


def activity_balls(doing: Mapping[int, Activity], who: Mapping[int, str]) -> list[Ball]:
    """who: the first words on each rank."""
    balls = []
    for rank, activity in sorted(doing.items()):
        words = f"idle, {_waits(activity.name)}" if activity.kind == "idle" else activity.name
        if activity.kind == COLLECTIVE:
            words = f"{label_of(activity)} in {activity.inside}"
        balls.append(Ball(rank, label_of(activity), f"{who[rank]}<br>{words}", kind_of(activity)))
    return balls


def _waits(why: str) -> str:
    return f"waits {why}" if why.startswith(("for", "until")) else why


def activity_words(doing: Mapping[int, Activity], selected: int | None) -> str:
    """How many ranks work and what the idle ones do; or what the selected rank does."""
    if selected is not None:
        mine = doing[selected]
        what = f"is idle, {_waits(mine.name)}" if mine.kind == "idle" else f"does {mine.name}"
        if mine.kind == "collective":
            what = f"is in the {label_of(mine)} of {mine.inside}"
        return f"rank {selected} {what}"
    count = Counter(map(kind_of, doing.values()))
    idle = count.pop("idle", 0)
    most = ", ".join(f"{n} in {name}" for name, n in count.most_common())
    return f"{len(doing) - idle} of {len(doing)} ranks work" + (f" ({most})" if most else "") + f", {idle} idle"
