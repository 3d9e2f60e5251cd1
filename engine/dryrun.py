"""Walks a program with made-up costs and no processes: when would each action run, and does it run at all?

This is the check that a program cannot deadlock, and the exact bubble of a schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

from engine.program import COMPUTE, RECEIVES, SENDS, Action, Kind, Program

Cost = Callable[[Action], int]


def unit_cost(action: Action) -> int:
    """A block's forward takes 1 (again if recomputed), its backward 2, all else nothing: the textbooks' stages."""
    if not action.unit.startswith("block"):
        return 0
    costs = {Kind.BACKWARD: 2, Kind.STEP: 0}
    return costs.get(action.kind, 1) if action.kind in COMPUTE else 0


@dataclass(frozen=True)
class Span:
    """An action of a lane with its start and end, in units of cost."""

    lane: int
    position: int
    action: Action
    start: int
    end: int


@dataclass(frozen=True)
class Stuck:
    """A lane that cannot go on: where it is and what it waits for."""

    lane: int
    position: int
    action: Action
    needs: str


@dataclass(frozen=True)
class DryRun:
    """What a walk found: the spans of what ran and, if the program deadlocks, where each lane stands."""

    spans: tuple[Span, ...]
    stuck: tuple[Stuck, ...]

    @property
    def makespan(self) -> int:
        return max((s.end for s in self.spans), default=0)

    def bubble(self) -> Fraction:
        """Idle ÷ total over all lanes, from the step's first start to its last end."""
        busy = sum(s.end - s.start for s in self.spans if s.action.kind in COMPUTE)
        lanes = len({s.lane for s in self.spans})
        total = self.makespan * lanes
        return 1 - Fraction(busy, total) if total else Fraction(0)


@dataclass
class _Walk:
    program: Program
    cost: Cost
    at: list[int] = field(init=False)
    clock: list[int] = field(init=False)
    sent: dict[tuple[Kind, int | None, int | None, int], int] = field(default_factory=dict)
    posted: dict[tuple[int, Kind, int | None, int | None], Action] = field(default_factory=dict)
    meets: dict[str, dict[int, int]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = [0] * len(self.program.lanes)
        self.clock = [0] * len(self.program.lanes)

    def arrival(self, z: int, recv: Action) -> int | None:
        """When the message of a posted receive arrives; None if nobody has sent it yet."""
        shift = {Kind.RECV_ACT: -1, Kind.RECV_GRAD: +1}[recv.kind]
        if recv.stage is None:
            return None
        return self.sent.get((RECEIVES[recv.kind], recv.stage + shift, recv.microbatch, z))

    def ready(self, z: int, action: Action) -> int | str:
        """When lane z could start `action`, or what it still needs."""
        if uses := _takes(action):
            key = (z, uses, action.stage, action.microbatch)
            if recv := self.posted.get(key):
                arrives = self.arrival(z, recv)
                if arrives is None:
                    return f"{RECEIVES[recv.kind].value} mb{recv.microbatch} from pipeline {recv.peer}"
                del self.posted[key]
                self.clock[z] = max(self.clock[z], arrives)
        for name, members in self.meets.items():
            waits = action.kind is Kind.STEP or (action.kind, action.unit, action.axis) == (Kind.WAIT, name, "tie")
            if waits and z in members and len(members) < 2:
                return f"the other end of the {name} reduction"
        return self.clock[z]

    def run(self) -> DryRun:
        moved = True
        while moved:
            moved = sum(self._advance(z) for z in range(len(self.program.lanes))) > 0
        stuck = [
            Stuck(z, i, lane[i], str(self.ready(z, lane[i])))
            for z, (lane, i) in enumerate(zip(self.program.lanes, self.at, strict=True))
            if i < len(lane)
        ]
        return DryRun(tuple(self.spans), tuple(stuck))

    def _advance(self, z: int) -> bool:
        lane, first = self.program.lanes[z], self.at[z]
        while self.at[z] < len(lane):
            action = lane[self.at[z]]
            start = self.ready(z, action)
            if isinstance(start, str):
                break
            end = start + self.cost(action)
            self._leave_marks(z, action, end)
            self.spans.append(Span(z, self.at[z], action, start, end))
            self.clock[z] = end
            self.at[z] += 1
        return self.at[z] > first

    def _leave_marks(self, z: int, action: Action, end: int) -> None:
        if action.kind in RECEIVES:
            self.posted[z, action.kind, action.stage, action.microbatch] = action
        elif action.kind in SENDS and action.peer is not None:
            self.sent[(action.kind, action.stage, action.microbatch, action.peer)] = end
        elif action.kind is Kind.REDUCE and action.axis == "tie":
            self.meets.setdefault(action.unit, {})[z] = end


def _takes(action: Action) -> Kind | None:
    """The kind of message a computation may need (the first unit of the stage takes it)."""
    if action.kind is Kind.FORWARD:
        return Kind.RECV_ACT
    return Kind.RECV_GRAD if action.kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT) else None


def dry_run(program: Program, cost: Cost = unit_cost) -> DryRun:
    """Runs every lane as far as it gets, each action as early as its lane and its messages allow."""
    return _Walk(program, cost).run()


def in_flight(program: Program) -> tuple[int, ...]:
    """Most micro-batch activations (stage-chunks) each lane holds at once: forwards begun less backwards done."""
    peaks = []
    for lane in program.lanes:
        live: set[tuple[int | None, int | None]] = set()
        peak = 0
        for i, a in enumerate(lane):
            if a.kind is Kind.FORWARD:
                live.add((a.stage, a.microbatch))
                peak = max(peak, len(live))
            elif a.kind in (Kind.BACKWARD, Kind.BACKWARD_WEIGHT) and _stage_ends(lane, i):
                live.discard((a.stage, a.microbatch))
        peaks.append(peak)
    return tuple(peaks)


def _stage_ends(lane: tuple[Action, ...], i: int) -> bool:
    """Whether action i is the last backward of its stage and micro-batch."""
    a = lane[i]
    for later in lane[i + 1 :]:
        if later.kind in (Kind.FORWARD, Kind.STEP):
            return True
        if later.kind is a.kind:
            return (later.stage, later.microbatch) != (a.stage, a.microbatch)
    return True
