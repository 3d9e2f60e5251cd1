"""The critical path of a step in legs that can be listed: one rank at one kind of thing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.prediction.critical_path import PathPiece, What


@dataclass(frozen=True)
class Leg:
    """Neighbouring pieces of the path on one rank and of one kind; first, last: names of its first and last piece."""

    rank: int
    what: What
    start_ns: int
    end_ns: int
    first: str
    last: str
    pieces: int

    @property
    def words(self) -> str:
        return self.first if self.pieces == 1 or self.first == self.last else f"{self.first} … {self.last}"


def legs(path: Iterable[PathPiece], shortest_ns: int = 0) -> tuple[Leg, ...]:
    """The path in legs. Idle pieces below `shortest_ns` between two pieces of work on one rank count as work."""
    found: list[Leg] = []
    for piece in path:
        before = found[-1] if found else None
        same = before is not None and before.rank == piece.rank
        short = piece.what == "idle" and piece.end_ns - piece.start_ns < shortest_ns
        if before is not None and same and (before.what == piece.what or (short and before.what == "compute")):
            last = before.last if short else piece.name
            count = before.pieces + (not short)
            found[-1] = Leg(before.rank, before.what, before.start_ns, piece.end_ns, before.first, last, count)
        else:
            found.append(Leg(piece.rank, piece.what, piece.start_ns, piece.end_ns, piece.name, piece.name, 1))
    return tuple(found)
