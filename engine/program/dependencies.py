"""Which communication must be done before an action may start?

An action that starts communication only starts it; whoever needs the result waits. Here those waits are worked out from
the program once, so that the ranks that run it and the rehearsal that foretells it wait for the same things.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.job.job import Job
from engine.model.buckets import buckets_of_pp_rank
from engine.model.units import needs, stages
from engine.program.kinds import KINDS, Kind
from engine.program.program import Action, Program
from engine.program.send_completion import Key, key, proofs

Positions = tuple[int, ...]


@dataclass(frozen=True)
class Waits:
    """Waits of one pipeline rank. Both lists have an entry for each position and one more for the end of the step.

    before[i]: positions of the earlier actions whose communication action i waits for, in this order. forgets[i]: the
    sends that are known to have arrived once those waits are over (see `engine.program.send_completion`).
    """

    before: tuple[Positions, ...]
    forgets: tuple[Positions, ...]


def waits(job: Job, program: Program, pp_rank: int) -> Waits:
    """The waits of pipeline rank `pp_rank`, whose program must have been checked."""
    walk = _Walk(job, program, pp_rank)
    found = [walk.step(i, action) for i, action in enumerate(program.lanes[pp_rank])]
    found.append((tuple(walk.rest()), ()))
    before, forgets = zip(*found, strict=True)
    return Waits(before, forgets)


class _Walk:
    """What is under way at one place of a lane, by position of the action that started it."""

    def __init__(self, job: Job, program: Program, pp_rank: int) -> None:
        self.job, self.proofs = job, proofs(program, pp_rank)
        self.takes = _message_takers(job)
        self.buckets = {unit: b for b in buckets_of_pp_rank(job, pp_rank) for unit in b.units}
        self.flying: dict[tuple[Kind, str, str], int] = {}
        self.arriving: dict[Key, int] = {}
        self.sends: dict[Key, int] = {}

    def step(self, i: int, a: Action) -> tuple[Positions, Positions]:
        """(positions waited for, sends forgotten) before action `a` at position `i`, which is then under way."""
        waited, forgotten = self._before(a)
        if a.kind.receives:
            self.arriving[key(a)] = i
        elif a.kind.sends:
            self.sends[key(a)] = i
        elif a.kind.moves:
            self.flying[a.kind, a.unit, a.axis] = i
        return tuple(waited), tuple(forgotten)

    def _before(self, a: Action) -> tuple[list[int], list[int]]:
        if a.kind.sums_norm:
            return self._all_landed(lambda kind, unit: kind is Kind.REDUCE), []
        if a.kind.updates:  # what is under way of its bucket is still being read or written
            return self._all_landed(lambda kind, unit: unit == a.unit), []
        if a.kind.ends:
            return self.rest(), []
        if a.kind is Kind.WAIT:
            return self._landed(Kind.REDUCE, a.unit, a.axis), []
        waited, forgotten = self._message(a)
        if a.kind.uses_parameters:
            for owner in needs(self.job.model, a.unit):
                waited += self._landed(Kind.GATHER, owner, self.buckets[owner].shard_axis)
        if a.kind.adds_gradient and self.job.effective_zero >= 2:
            for owner in needs(self.job.model, a.unit):  # its gradient buffer may be on its way
                bucket = self.buckets[owner]
                waited += self._landed(Kind.REDUCE, bucket.name, bucket.shard_axis)
        return waited, forgotten

    def _message(self, a: Action) -> tuple[list[int], list[int]]:
        """The message that a stage's first computation takes, and what it proves."""
        recv = self.takes.get((a.kind, a.unit))
        if recv is None or a.stage is None or a.microbatch is None:
            return [], []
        message = (recv, a.stage, a.microbatch)
        if message not in self.arriving:
            return [], []
        proved = [self.sends.pop(sent) for sent in self.proofs.get(message, ()) if sent in self.sends]
        return [self.arriving.pop(message)], proved

    def _all_landed(self, which: Callable[[Kind, str], bool]) -> list[int]:
        return [self.flying.pop(way) for way in list(self.flying) if which(way[0], way[1])]

    def rest(self) -> list[int]:
        """All that is under way."""
        return self._all_landed(lambda kind, unit: True) + [self.sends.pop(sent) for sent in list(self.sends)]

    def _landed(self, kind: Kind, unit: str, axis: str) -> list[int]:
        position = self.flying.pop((kind, unit, axis), None)
        return [] if position is None else [position]


def _message_takers(job: Job) -> dict[tuple[Kind, str], Kind]:
    """(kind, unit) of the computations that take a stage's message → the kind of its receive."""
    takes: dict[tuple[Kind, str], Kind] = {}
    for units in stages(job):
        takes[Kind.FORWARD, units[0]] = Kind.RECV_ACT
        takes |= {(kind, units[-1]): Kind.RECV_GRAD for kind in KINDS if kind.makes_gradient}
    return takes
