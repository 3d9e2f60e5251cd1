"""The program of a step in outline: what happens in an order in which everything comes after what it waits for.

The order, the messages, gathers and reductions, and what waits for what are the engine's own (`engine.program.compile`,
`engine.program.dependencies`), for a representative of all plans that differ only in what things cost. Where nothing
but messages happens between the computations of a stage, they stay together as one (`grouping.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from engine.job.errors import Unknown
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.model.buckets import buckets_of_pp_rank
from engine.model.units import TOKENS, stages, tied_pp_ranks
from engine.planner.estimate.events import (
    HOST,
    KNOWN,
    UNITS,
    WORKS,
    Collective,
    Comes,
    Counts,
    Does,
    Event,
    Meets,
    Message,
    Outline,
    Price,
    Scalars,
    Step,
    Waits,
    Work,
)
from engine.planner.estimate.grouping import Grouping, unit_place
from engine.program.compile import compile_lanes
from engine.program.dependencies import waits
from engine.program.kinds import Kind
from engine.program.program import Action, Program
from engine.program.send_completion import Key


def outline(job: Job) -> Outline:
    """Of one step of a job that has passed `rules.check`. Raises `Unknown` for a kind of action not in KNOWN."""
    walk = _Outliner(job)
    walk.run()
    return Outline(job.plan.pp, walk.events, list(walk.prices))


@dataclass
class _Progress:
    """Where a pipeline rank has got to. todo: (position, position waited for, or None where the action is done)."""

    todo: list[tuple[int, int | None]]
    at: int = 0
    pending: list[int] = field(default_factory=lambda: [0] * (HOST + 1))
    meeting: dict[int, int] = field(default_factory=dict)
    """Position of an action that started communication → its meeting."""


class _Outliner:
    """Lets every pipeline rank go on until it has to wait for a meeting to which somebody has yet to come."""

    def __init__(self, job: Job) -> None:
        self.job, self.grouping, plan = job, Grouping(job), job.plan
        order = SCHEDULES[plan.schedule].order(plan.pp, plan.microbatches, plan.chunks)
        self.program: Program = compile_lanes(job, order, self.grouping.expand)
        self.units_of_stages = stages(job)
        self.progress = [_Progress(list(self._todo(pp_rank))) for pp_rank in range(plan.pp)]
        self.holds = [{b.name: _holds(b.units) for b in buckets_of_pp_rank(job, pp_rank)} for pp_rank in range(plan.pp)]
        self.events: list[Event] = []
        self.prices: dict[Price, int] = {}
        self.over_meetings: set[int] = set()
        self.waiting: dict[int, list[int]] = defaultdict(list)
        self.arrived: dict[object, list[int]] = defaultdict(list)
        self.meeting_numbers: dict[object, int] = {}
        self.latest_on_line: dict[object, int] = {}
        self.counts: dict[tuple[Kind, int | None, bool], Counts] = {}
        self.arrivals = 0
        self.ready = deque(range(plan.pp))

    def _todo(self, pp_rank: int) -> Iterator[tuple[int, int | None]]:
        for position, before in enumerate(waits(self.job, self.program, pp_rank).before):
            yield from ((position, started) for started in before)
            if position < len(self.program.lanes[pp_rank]):
                yield position, None

    def run(self) -> None:
        while self.ready:
            pp_rank = self.ready.popleft()
            state = self.progress[pp_rank]
            while state.at < len(state.todo) and self._goes_on(pp_rank, state, *state.todo[state.at]):
                state.at += 1
        for pp_rank, state in enumerate(self.progress):
            assert state.at == len(state.todo), (pp_rank, state.todo[state.at], "never goes on")
            self._flush(pp_rank)

    def _goes_on(self, pp_rank: int, state: _Progress, position: int, awaited: int | None) -> bool:
        if awaited is None:
            return self._does(pp_rank, state, position, self.program.lanes[pp_rank][position])
        if not self._is_over(pp_rank, state.meeting[awaited]):
            return False
        state.pending[HOST] += 1
        return True

    def _is_over(self, pp_rank: int, meeting: int) -> bool:
        """Whether a pipeline rank can go on from a meeting; if not it is called when it can."""
        if meeting not in self.over_meetings:
            self.waiting[meeting].append(pp_rank)
            return False
        self._flush(pp_rank)
        self.events.append(Waits(pp_rank, meeting))
        return True

    def _does(self, pp_rank: int, state: _Progress, position: int, action: Action) -> bool:
        if action.kind is Kind.NORM:
            return self._norm(pp_rank, state)
        if action.kind is Kind.UPDATE:
            self._flush(pp_rank)
            self.events.append(
                Does(pp_rank, self._price(Step(pp_rank, action.kind, (self.holds[pp_rank][action.unit],))))
            )
            state.pending[HOST] += 1
            return True
        if action.kind in WORKS:
            for place, n in enumerate(self._counts(action)):
                state.pending[place] += n
        elif action.kind.moves == "message":
            state.meeting[position] = self._message(pp_rank, action)
            state.pending[HOST] += 1
        elif action.kind in (Kind.GATHER, Kind.REDUCE):
            state.meeting[position] = self._collective(pp_rank, action)
            state.pending[HOST] += 1
        elif action.kind not in (Kind.RELEASE, Kind.WAIT, Kind.END):  # these take no time themselves
            raise Unknown("kind of action of the planner", action.kind.name, [kind.name for kind in KNOWN])
        return True

    def _counts(self, action: Action) -> Counts:
        assert action.stage is not None
        together = self.grouping.together(action)
        key = action.kind, action.stage if together else unit_place(action.unit), together
        if key not in self.counts:
            self.counts[key] = self.grouping.counts(action, self.units_of_stages[action.stage])
        return self.counts[key]

    def _flush(self, pp_rank: int) -> None:
        """What a pipeline rank has computed since it last came to or from a meeting, as one event."""
        pending = self.progress[pp_rank].pending
        if any(pending):
            self.events.append(Does(pp_rank, self._price(Work(pp_rank, tuple(pending)))))
            self.progress[pp_rank].pending = [0] * (HOST + 1)

    def _price(self, price: Price) -> int:
        return self.prices.setdefault(price, len(self.prices))

    def _arrive(
        self, pp_rank: int, meeting: object, members: int, line: object, price: Price, replicas: bool = False
    ) -> int:
        """A pipeline rank comes to a meeting, which is over once all members have come.

        line: the meetings that come one after the other, of which it is the next.
        """
        self._flush(pp_rank)
        self.events.append(Comes(pp_rank, self.arrivals))
        came = self.arrived[meeting]
        came.append(self.arrivals)
        self.arrivals += 1
        number = self.meeting_numbers.setdefault(meeting, len(self.meeting_numbers))
        if len(came) == members:
            behind = (self.latest_on_line[line],) if line in self.latest_on_line else ()
            self.latest_on_line[line] = number
            self.events.append(Meets(number, tuple(came), behind, self._price(price), replicas))
            self.over_meetings.add(number)
            self.ready.extend(self.waiting.pop(number, ()))
        return number

    def _message(self, pp_rank: int, action: Action) -> int:
        assert action.stage is not None and action.microbatch is not None and action.peer is not None
        sends = action.kind.sends
        kind = action.kind if sends else action.kind.other_end
        stage = action.stage if sends else action.stage + (1 if kind is Kind.SEND_GRAD else -1)
        ends = (pp_rank, action.peer) if sends else (action.peer, pp_rank)
        name: Key = (kind, stage, action.microbatch)
        hop = ends[0] if (ends[0] + 1) % self.job.plan.pp == ends[1] else ends[1]
        return self._arrive(pp_rank, name, 2, (kind, *ends), Message(hop))

    def _collective(self, pp_rank: int, action: Action) -> int:
        price = Collective(pp_rank, action.axis, action.kind is Kind.GATHER, self.holds[pp_rank][action.unit])
        if action.axis == "tie":
            ends = tied_pp_ranks(self.job)
            return self._arrive(pp_rank, ("tie", action.unit), len(ends), "tie", price._replace(pp_rank=ends[0]))
        return self._arrive(
            pp_rank, (pp_rank, action.axis, self.arrivals), 1, (pp_rank, action.axis), price, action.axis == "dp"
        )

    def _norm(self, pp_rank: int, state: _Progress) -> bool:
        """The gradient norm, and its sums over one axis after the other; True once they are over."""
        plan = self.job.plan
        name = ("pp scalars", pp_rank)
        if name not in self.meeting_numbers:
            self._flush(pp_rank)
            self.events.append(
                Does(pp_rank, self._price(Step(pp_rank, Kind.NORM, tuple(self.holds[pp_rank].values()))))
            )
            self.meeting_numbers[name] = -1
            if plan.tp > 1:
                self._alone(pp_rank, "tp")
            if plan.pp > 1:
                self._arrive(pp_rank, "pp scalars", plan.pp, "world", Scalars(0, "pp"))
        if plan.pp > 1 and not self._is_over(pp_rank, self.meeting_numbers["pp scalars"]):
            return False
        if plan.dp > 1:
            self._alone(pp_rank, "dp")
        state.pending[HOST] += 1
        return True

    def _alone(self, pp_rank: int, axis: str) -> None:
        number = self._arrive(
            pp_rank, (pp_rank, axis, "scalars"), 1, (pp_rank, "world"), Scalars(pp_rank, axis), axis == "dp"
        )
        self._is_over(pp_rank, number)


def _holds(units: Sequence[str]) -> Counts:
    found = Counter(TOKENS if unit == TOKENS else UNITS[unit_place(unit)] for unit in units)
    return tuple(found[name] for name in (*UNITS, TOKENS))
