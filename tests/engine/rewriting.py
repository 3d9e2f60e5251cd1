"""Programs rewritten by hand: what compiled ones become when actions move, vanish or change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from engine.job.job import Job
from engine.program.compile import compile_job
from engine.program.kinds import Kind
from engine.program.program import Action, Program

SMALL: dict[str, Any] = {"layers": 2, "microbatches": 2}
ONE = Job.from_options(**SMALL)
PIPE = Job.from_options(pp=2, layers=4, microbatches=3, batch=6)
DATA = {zero: Job.from_options(dp=2, zero=zero, **SMALL) for zero in range(4)}
TIED = Job.from_options(dp=2, tp=2, pp=2, tied=True, sequence_parallel=True, layers=4, microbatches=2)

Lane = list[Action]
Rewrite = Callable[[Lane], Iterable[Action]]


def rewritten(job: Job, *rewrites: Rewrite) -> Program:
    """The compiled program with each lane rewritten; with a single rewrite only the first lane."""
    lanes = [list(lane) for lane in compile_job(job).lanes]
    return Program(tuple(tuple(rewrite(lane)) for rewrite, lane in zip(rewrites, lanes, strict=False))
                   + tuple(map(tuple, lanes[len(rewrites) :])))  # fmt: skip


def reads(line: str) -> Action:
    return Action.parse(line)


def without(*kinds: Kind, axis: str = "") -> Rewrite:
    return lambda lane: [a for a in lane if a.kind not in kinds or (axis and a.axis != axis)]


def replaced(old: str, *new: str) -> Rewrite:
    def rewrite(lane: Lane) -> Lane:
        assert reads(old) in lane, (old, [str(a) for a in lane])
        at = lane.index(reads(old))
        return [*lane[:at], *map(reads, new), *lane[at + 1 :]]

    return rewrite


def moved(line: str, *, before: str = "", after: str = "") -> Rewrite:
    def rewrite(lane: Lane) -> Lane:
        rest = replaced(line)(lane)
        at = rest.index(reads(before)) if before else rest.index(reads(after)) + 1
        return [*rest[:at], reads(line), *rest[at:]]

    return rewrite


def same(lane: Lane) -> Lane:
    return lane


def reductions_first(lane: Lane) -> Lane:
    return sorted(lane, key=lambda a: a.kind is not Kind.REDUCE)


def reductions_last(lane: Lane) -> Lane:
    """As late as can be: with their waits, in their order, just before the norm."""
    late = [a for a in lane if a.kind in (Kind.REDUCE, Kind.WAIT)]
    early = [a for a in lane if a not in late]
    norm = early.index(Action(Kind.NORM))
    return [*early[:norm], *late, *early[norm:]]


def receives_first(lane: Lane) -> Lane:
    return sorted(lane, key=lambda a: not a.kind.receives)


def gathered_all_step(lane: Lane) -> Lane:
    """ZeRO-3 with everything gathered at the start and released at the end."""
    names = list(dict.fromkeys(a.unit for a in lane if a.kind is Kind.GATHER))
    *rest, end = (a for a in lane if a.kind not in (Kind.GATHER, Kind.RELEASE))
    return [*(Action(Kind.GATHER, n, axis="dp", op="all_gather") for n in names), *rest,
            *(Action(Kind.RELEASE, n) for n in names), end]  # fmt: skip


def waiting(lane: Lane) -> Lane:
    """A wait after every reduction, and some for nothing."""
    waits = {a: Action(Kind.WAIT, a.unit, axis=a.axis) for a in lane if a.kind is Kind.REDUCE}
    return [next_ for a in lane for next_ in ([a, waits[a], waits[a]] if a in waits else [a])]


def other_way_round(lane: Lane) -> Lane:
    """The micro-batches in the opposite order."""
    last = max(a.microbatch or 0 for a in lane)
    return [a if a.microbatch is None else replace(a, microbatch=last - a.microbatch) for a in lane]
