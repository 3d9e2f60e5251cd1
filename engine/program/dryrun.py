"""Walks a program with made-up costs and no processes: when would each action run, and does it run at all?

This is the check that a program cannot deadlock, and the exact bubble of a schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from engine.model.unit_kinds import kind_of
from engine.program.kinds import Kind
from engine.program.program import Action, Program

Time = int | float | Fraction  # whole numbers and fractions stay exact
Cost = Callable[[Action], Time]


def unit_cost(action: Action) -> int:
    """A block's forward takes 1, again if recomputed, its backward 2, each part of a split one 1, all else nothing."""
    return action.kind.cost if action.unit and action.kind.acts_on == "unit" and kind_of(action.unit).block else 0


@dataclass(frozen=True)
class Span:
    """An action of a pipeline rank with its start and end, in units of cost."""

    pp_rank: int
    position: int
    action: Action
    start: Time
    end: Time


@dataclass(frozen=True)
class Stuck:
    """A pipeline rank that cannot go on: where it is and what it waits for."""

    pp_rank: int
    position: int
    action: Action
    needs: str


@dataclass(frozen=True)
class DryRun:
    """What a walk found: the spans of what ran and, if the program deadlocks, where each pipeline rank stands."""

    spans: tuple[Span, ...]
    stuck: tuple[Stuck, ...]

    @property
    def makespan(self) -> Time:
        """The last end, in units of cost; the first start is 0."""
        return max((s.end for s in self.spans), default=0)

    @property
    def longest_span(self) -> Time:
        """The longest that any pipeline rank takes from the start of its first computation to the end of its last."""
        working: dict[int, list[Span]] = {}
        for span in self.spans:
            if span.action.kind.computes and span.end > span.start:
                working.setdefault(span.pp_rank, []).append(span)
        return max((spans[-1].end - spans[0].start for spans in working.values()), default=0)

    def bubble(self) -> Fraction:
        """Idle ÷ total over all pipeline ranks, from the step's first start to its last end."""
        return self._idle(self.makespan)

    def span_bubble(self) -> Fraction:
        """Idle ÷ total where each pipeline rank's clock starts with its own first computation (`longest_span`).

        This is the bubble rate of the zero-bubble papers (Qi et al. 2023, section 5.3): it counts no wait for a
        rank's first micro-batch, which the next step can fill if ranks need not meet before the optimizer.
        """
        return self._idle(self.longest_span)

    def _idle(self, duration: Time) -> Fraction:
        busy = sum(Fraction(s.end - s.start) for s in self.spans if s.action.kind.computes)
        total = Fraction(duration) * len({s.pp_rank for s in self.spans})
        return 1 - busy / total if total else Fraction(0)


@dataclass
class _Walk:
    program: Program
    cost: Cost
    delay: Time
    at: list[int] = field(init=False)
    clock: list[Time] = field(init=False)
    sent: dict[tuple[Kind, int | None, int | None, int], Time] = field(default_factory=dict)
    posted: dict[tuple[int, Kind, int | None, int | None], Action] = field(default_factory=dict)
    meets: dict[str, dict[int, Time]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = [0] * len(self.program.lanes)
        self.clock = [0] * len(self.program.lanes)

    def arrival(self, pp_rank: int, recv: Action) -> Time | None:
        """When the message of a posted receive arrives; None if nobody has sent it yet."""
        shift = {Kind.RECV_ACT: -1, Kind.RECV_GRAD: +1}[recv.kind]
        if recv.stage is None:
            return None
        return self.sent.get((recv.kind.other_end, recv.stage + shift, recv.microbatch, pp_rank))

    def ready(self, pp_rank: int, action: Action) -> Time | str:
        """When pipeline rank `pp_rank` could start `action`, or what it still needs."""
        if uses := _takes(action):
            key = (pp_rank, uses, action.stage, action.microbatch)
            if recv := self.posted.get(key):
                arrives = self.arrival(pp_rank, recv)
                if arrives is None:
                    return f"{recv.kind.other_end.name} mb{recv.microbatch} from pipeline {recv.peer}"
                del self.posted[key]
                self.clock[pp_rank] = max(self.clock[pp_rank], arrives)
        for name, members in self.meets.items():
            waits = action.kind.sums_norm or (action.kind, action.unit, action.axis) == (Kind.WAIT, name, "tie")
            if waits and pp_rank in members and len(members) < 2:
                return f"the other end of the {name} reduction"
        return self.clock[pp_rank]

    def run(self) -> DryRun:
        moved = True
        while moved:
            moved = sum(self._advance(pp_rank) for pp_rank in range(len(self.program.lanes))) > 0
        stuck = [
            Stuck(pp_rank, i, lane[i], str(self.ready(pp_rank, lane[i])))
            for pp_rank, (lane, i) in enumerate(zip(self.program.lanes, self.at, strict=True))
            if i < len(lane)
        ]
        return DryRun(tuple(self.spans), tuple(stuck))

    def _advance(self, pp_rank: int) -> bool:
        lane, first = self.program.lanes[pp_rank], self.at[pp_rank]
        while self.at[pp_rank] < len(lane):
            action = lane[self.at[pp_rank]]
            start = self.ready(pp_rank, action)
            if isinstance(start, str):
                break
            end = start + self.cost(action)
            self._leave_marks(pp_rank, action, end)
            self.spans.append(Span(pp_rank, self.at[pp_rank], action, start, end))
            self.clock[pp_rank] = end
            self.at[pp_rank] += 1
        return self.at[pp_rank] > first

    def _leave_marks(self, pp_rank: int, action: Action, end: Time) -> None:
        if action.kind.receives:
            self.posted[pp_rank, action.kind, action.stage, action.microbatch] = action
        elif action.kind.sends and action.peer is not None:
            self.sent[(action.kind, action.stage, action.microbatch, action.peer)] = end + self.delay
        elif action.kind is Kind.REDUCE and action.axis == "tie":
            self.meets.setdefault(action.unit, {})[pp_rank] = end


def _takes(action: Action) -> Kind | None:
    """The kind of message a computation may need (the first unit of the stage takes it)."""
    if action.kind is Kind.FORWARD:
        return Kind.RECV_ACT
    return Kind.RECV_GRAD if action.kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT) else None


def dry_run(program: Program, cost: Cost = unit_cost, delay: Time = 0) -> DryRun:
    """Runs every pipeline rank as far as it gets, each action as early as those before it and its messages allow.

    delay: how long a message is on its way; its sender and its receiver are free meanwhile.
    """
    return _Walk(program, cost, delay).run()


def in_flight(program: Program, until: Literal["input", "weight"] = "weight") -> tuple[int, ...]:
    """Most micro-batch activations (stage-chunks) each pipeline rank holds at once: forwards begun less backwards done.

    until: where backwards are split, whether an activation is held up to its input or up to its weight part.
    """
    frees = Kind.BACKWARD_INPUT if until == "input" else Kind.BACKWARD_WEIGHT
    peaks = []
    for lane in program.lanes:
        ends = {(a.stage, a.microbatch): i for i, a in enumerate(lane) if a.kind in (Kind.BACKWARD, frees)}
        live: set[tuple[int | None, int | None]] = set()
        peak = 0
        for i, a in enumerate(lane):
            if a.kind is Kind.FORWARD:
                live.add((a.stage, a.microbatch))
                peak = max(peak, len(live))
            elif ends.get((a.stage, a.microbatch)) == i:
                live.discard((a.stage, a.microbatch))
        peaks.append(peak)
    return tuple(peaks)
