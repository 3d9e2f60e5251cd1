"""What an outline of a step is made of: prices, events, and the order in which they happen.

Whatever takes time has a price, which says what it is made of and not how long it takes: `prices.py` turns it into
seconds for each plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from engine.program.kinds import KINDS, Kind

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
    """Computing on a pipeline rank. counts: of each of [UNITS, WORKS], and of rows that the host starts."""

    pp_rank: int
    counts: Counts


class Collective(NamedTuple):
    """Of a bucket that holds so many of each of UNITS and of token matrices. axis: dp, tp or tie."""

    pp_rank: int
    axis: str
    gathers: bool
    holds: Counts


class Message(NamedTuple):
    """Between two neighbours; hop: the pipeline rank from which the next one is reached."""

    hop: int


class Step(NamedTuple):
    """Of the optimizer step of a pipeline rank its gradient norm, collectives aside, or one update.

    buckets: what each bucket that it works on holds, as in `Collective`.
    """

    pp_rank: int
    kind: Kind
    buckets: tuple[Counts, ...]


class Scalars(NamedTuple):
    """Two doubles summed over an axis, by the gradient norm."""

    pp_rank: int
    axis: str


Price = Work | Collective | Message | Step | Scalars


class Does(NamedTuple):
    """A pipeline rank goes on for as long as `price` says."""

    pp_rank: int
    price: int


class Waits(NamedTuple):
    """A pipeline rank goes on when `meeting` is over."""

    pp_rank: int
    meeting: int


class Comes(NamedTuple):
    """A pipeline rank comes to a meeting; where it has got to is remembered as `arrival`."""

    pp_rank: int
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
    """The events of a step of `pp` pipeline ranks, and the distinct prices that they name by number."""

    pp: int
    events: list[Event]
    prices: list[Price]
