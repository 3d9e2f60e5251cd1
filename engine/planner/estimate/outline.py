"""The program of a step in outline: what happens in an order in which everything comes after what it waits for.

The order, the messages, gathers and reductions, and what waits for what are the engine's own (`engine.program.compile`,
`engine.program.dependencies`), for a representative of all plans that differ only in what things cost. Where nothing
but messages happens between the computations of a stage, they stay together as one.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.job.errors import Unknown
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.model.buckets import buckets_of_pp_rank
from engine.model.units import TOKENS, recomputes, stages, tied_pp_ranks
from engine.program.compile import compile_lanes
from engine.program.dependencies import waits
from engine.program.kinds import KINDS, Kind
from engine.program.passes.layers import expand_units
from engine.program.program import Action, Lanes, Program
from engine.program.send_completion import Key

UNITS = ("embedding", "block", "head")
WORKS = (Kind.FORWARD, Kind.BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT, Kind.RECOMPUTE)
KNOWN = (
    *WORKS,
    *(kind for kind in KINDS if kind.moves == "message"),
    Kind.GATHER,
    Kind.REDUCE,
    Kind.RELEASE,
    Kind.WAIT,
    Kind.NORM,
    Kind.UPDATE,
    Kind.END,
)
HOST = len(UNITS) * len(WORKS)
"""Place of the host's time for one row among what work is made of; before it come [UNITS, WORKS]."""

Counts = tuple[int, ...]


class Work(NamedTuple):
    """Computing on a lane. counts: of each of [UNITS, WORKS], and of rows that the host starts."""

    lane: int
    counts: Counts


class Collective(NamedTuple):
    """Of a bucket that holds so many of each of UNITS and of token matrices. axis: dp, tp or tie."""

    lane: int
    axis: str
    gathers: bool
    holds: Counts


class Message(NamedTuple):
    """Between two neighbours; hop: the lane from which the next one is reached."""

    hop: int


class Step(NamedTuple):
    """Of the optimizer step of a lane its gradient norm, collectives aside, or one update.

    buckets: what each bucket that it works on holds, as in `Collective`.
    """

    lane: int
    kind: Kind
    buckets: tuple[Counts, ...]


class Scalars(NamedTuple):
    """Two doubles summed over an axis, by the gradient norm."""

    lane: int
    axis: str


Price = Work | Collective | Message | Step | Scalars


class Does(NamedTuple):
    """A lane goes on for as long as `price` says."""

    lane: int
    price: int


class Waits(NamedTuple):
    """A lane goes on when `meeting` is over."""

    lane: int
    meeting: int


class Comes(NamedTuple):
    """A lane comes to a meeting; where it has got to is remembered as `arrival`."""

    lane: int
    arrival: int


class Meets(NamedTuple):
    """A communication begins after all `arrivals` and the meetings `behind`. replicas: those of all replicas too."""

    meeting: int
    arrivals: tuple[int, ...]
    behind: tuple[int, ...]
    price: int
    replicas: bool


Event = Does | Waits | Comes | Meets


@dataclass(frozen=True, eq=False)
class Outline:
    """The events of a step of `lanes` pipeline ranks, and the distinct prices that they name by number."""

    lanes: int
    events: list[Event]
    prices: list[Price]


def outline(job: Job) -> Outline:
    """Of a job that has passed `rules.check`."""
    made = _Outliner(job)
    made.run()
    return Outline(job.plan.pp, made.events, list(made.prices))


@dataclass(frozen=True, eq=False)
class _Rough:
    """Leaves a stage's computations together where its units need not be told apart: nothing is gathered, and its
    gradients are reduced after the last micro-batch alone."""

    job: Job

    def together(self, a: Action) -> bool:
        if self.job.effective_zero >= 2 or a.kind not in WORKS:
            return False
        return a.kind is Kind.FORWARD or a.microbatch != self.job.plan.microbatches - 1

    def expand(self, lanes: Lanes, dealt: Sequence[Sequence[str]]) -> Lanes:
        """The unit that takes the stage's message stands for the whole stage."""
        first, last = [units[:1] for units in dealt], [units[-1:] for units in dealt]

        def some(a: Action) -> Sequence[Sequence[str]]:
            return dealt if not self.together(a) else first if a.kind is Kind.FORWARD else last

        return tuple(tuple(b for a in lane for b in expand_units(((a,),), some(a))[0]) for lane in lanes)

    def counts(self, a: Action, units: Sequence[str]) -> Counts:
        """What the computation is made of. units: of its stage."""
        out = [0] * (HOST + 1)
        out[HOST] = 1
        if not self.together(a) or a.kind is Kind.RECOMPUTE:
            out[_place(a.unit, a.kind)] = 1
            return tuple(out)
        for unit in units:
            whole = unit == "embedding" and a.kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
            if whole and a.kind is Kind.BACKWARD_WEIGHT:
                continue  # went whole with the input parts
            out[_place(unit, Kind.BACKWARD if whole else a.kind)] += 1
            if a.kind in (Kind.BACKWARD, Kind.BACKWARD_INPUT) and unit != a.unit and recomputes(self.job, unit):
                out[_place(unit, Kind.RECOMPUTE)] += 1
        out[HOST] = sum(out[:HOST])
        return tuple(out)


def _place(unit: str, kind: Kind) -> int:
    return _unit(unit) * len(WORKS) + WORKS.index(kind)


def _unit(unit: str) -> int:
    return 1 if unit.startswith("block") else UNITS.index(unit)


@dataclass
class _Lane:
    """Where a pipeline rank has got to. todo: (position, position waited for, or None where the action is done)."""

    todo: list[tuple[int, int | None]]
    at: int = 0
    pending: list[int] = field(default_factory=lambda: [0] * (HOST + 1))
    meeting: dict[int, int] = field(default_factory=dict)
    """Position of an action that started communication → its meeting."""


class _Outliner:
    """Lets every lane go on until it has to wait for a meeting to which somebody has yet to come."""

    def __init__(self, job: Job) -> None:
        self.job, self.rough, plan = job, _Rough(job), job.plan
        order = SCHEDULES[plan.schedule].order(plan.pp, plan.microbatches, plan.chunks)
        self.program: Program = compile_lanes(job, order, self.rough.expand)
        self.dealt = stages(job)
        self.lanes = [_Lane(list(self._todo(z))) for z in range(plan.pp)]
        self.holds = [{b.name: _holds(b.units) for b in buckets_of_pp_rank(job, z)} for z in range(plan.pp)]
        self.events: list[Event] = []
        self.prices: dict[Price, int] = {}
        self.over: set[int] = set()
        self.waiting: dict[int, list[int]] = defaultdict(list)
        self.arrived: dict[object, list[int]] = defaultdict(list)
        self.numbers: dict[object, int] = {}
        self.latest: dict[object, int] = {}
        self.counts: dict[tuple[Kind, int | None, bool], Counts] = {}
        self.arrivals = 0
        self.ready = deque(range(plan.pp))

    def _todo(self, z: int) -> Iterator[tuple[int, int | None]]:
        for i, before in enumerate(waits(self.job, self.program, z).before):
            yield from ((i, j) for j in before)
            if i < len(self.program.lanes[z]):
                yield i, None

    def run(self) -> None:
        while self.ready:
            z = self.ready.popleft()
            lane = self.lanes[z]
            while lane.at < len(lane.todo) and self._goes_on(z, lane, *lane.todo[lane.at]):
                lane.at += 1
        for z, lane in enumerate(self.lanes):
            assert lane.at == len(lane.todo), (z, lane.todo[lane.at], "never goes on")
            self._flush(z)

    def _goes_on(self, z: int, lane: _Lane, i: int, awaited: int | None) -> bool:
        if awaited is None:
            return self._does(z, lane, i, self.program.lanes[z][i])
        if not self._is_over(z, lane.meeting[awaited]):
            return False
        lane.pending[HOST] += 1
        return True

    def _is_over(self, z: int, meeting: int) -> bool:
        """Whether lane z can go on from a meeting; if not it is called when it can."""
        if meeting not in self.over:
            self.waiting[meeting].append(z)
            return False
        self._flush(z)
        self.events.append(Waits(z, meeting))
        return True

    def _does(self, z: int, lane: _Lane, i: int, a: Action) -> bool:
        if a.kind is Kind.NORM:
            return self._norm(z, lane)
        if a.kind is Kind.UPDATE:
            self._flush(z)
            self.events.append(Does(z, self._price(Step(z, a.kind, (self.holds[z][a.unit],)))))
            lane.pending[HOST] += 1
            return True
        if a.kind in WORKS:
            for place, n in enumerate(self._counts(a)):
                lane.pending[place] += n
        elif a.kind.moves == "message":
            lane.meeting[i] = self._message(z, a)
            lane.pending[HOST] += 1
        elif a.kind in (Kind.GATHER, Kind.REDUCE):
            lane.meeting[i] = self._collective(z, a)
            lane.pending[HOST] += 1
        elif a.kind not in (Kind.RELEASE, Kind.WAIT, Kind.END):  # these take no time themselves
            raise Unknown("kind of action of the planner", a.kind.name, [kind.name for kind in KNOWN])
        return True

    def _counts(self, a: Action) -> Counts:
        assert a.stage is not None
        together = self.rough.together(a)
        key = a.kind, a.stage if together else _unit(a.unit), together
        if key not in self.counts:
            self.counts[key] = self.rough.counts(a, self.dealt[a.stage])
        return self.counts[key]

    def _flush(self, z: int) -> None:
        """What lane z has computed since it last came to or from a meeting, as one event."""
        pending = self.lanes[z].pending
        if any(pending):
            self.events.append(Does(z, self._price(Work(z, tuple(pending)))))
            self.lanes[z].pending = [0] * (HOST + 1)

    def _price(self, price: Price) -> int:
        return self.prices.setdefault(price, len(self.prices))

    def _arrive(self, z: int, meeting: object, members: int, line: object, price: Price, replicas: bool = False) -> int:
        """Lane z comes to a meeting, which is over once all members have come. line: of which it is the next one."""
        self._flush(z)
        self.events.append(Comes(z, self.arrivals))
        came = self.arrived[meeting]
        came.append(self.arrivals)
        self.arrivals += 1
        number = self.numbers.setdefault(meeting, len(self.numbers))
        if len(came) == members:
            behind = (self.latest[line],) if line in self.latest else ()
            self.latest[line] = number
            self.events.append(Meets(number, tuple(came), behind, self._price(price), replicas))
            self.over.add(number)
            self.ready.extend(self.waiting.pop(number, ()))
        return number

    def _message(self, z: int, a: Action) -> int:
        assert a.stage is not None and a.microbatch is not None and a.peer is not None
        sends = a.kind.sends
        kind = a.kind if sends else a.kind.other_end
        stage = a.stage if sends else a.stage + (1 if kind is Kind.SEND_GRAD else -1)
        ends = (z, a.peer) if sends else (a.peer, z)
        name: Key = (kind, stage, a.microbatch)
        hop = ends[0] if (ends[0] + 1) % self.job.plan.pp == ends[1] else ends[1]
        return self._arrive(z, name, 2, (kind, *ends), Message(hop))

    def _collective(self, z: int, a: Action) -> int:
        price = Collective(z, a.axis, a.kind is Kind.GATHER, self.holds[z][a.unit])
        if a.axis == "tie":
            ends = tied_pp_ranks(self.job)
            return self._arrive(z, ("tie", a.unit), len(ends), "tie", price._replace(lane=ends[0]))
        return self._arrive(z, (z, a.axis, self.arrivals), 1, (z, a.axis), price, a.axis == "dp")

    def _norm(self, z: int, lane: _Lane) -> bool:
        """The gradient norm, and its sums over one axis after the other; True once they are over."""
        plan = self.job.plan
        name = ("pp scalars", z)
        if name not in self.numbers:
            self._flush(z)
            self.events.append(Does(z, self._price(Step(z, Kind.NORM, tuple(self.holds[z].values())))))
            self.numbers[name] = -1
            if plan.tp > 1:
                self._alone(z, "tp")
            if plan.pp > 1:
                self._arrive(z, "pp scalars", plan.pp, "world", Scalars(0, "pp"))
        if plan.pp > 1 and not self._is_over(z, self.numbers["pp scalars"]):
            return False
        if plan.dp > 1:
            self._alone(z, "dp")
        lane.pending[HOST] += 1
        return True

    def _alone(self, z: int, axis: str) -> None:
        number = self._arrive(z, (z, axis, "scalars"), 1, (z, "world"), Scalars(z, axis), axis == "dp")
        self._is_over(z, number)


def _holds(units: Sequence[str]) -> Counts:
    found = Counter(TOKENS if unit == TOKENS else UNITS[_unit(unit)] for unit in units)
    return tuple(found[name] for name in (*UNITS, TOKENS))
