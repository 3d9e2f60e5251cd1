"""The critical path of a step: the chain of work and communication that makes it as long as it is.

It is followed from the last end back to the beginning, always through what was waited for: a computation for the row
before it on its rank, a message for its sender or receiver, a collective for the member that came last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from engine.prediction.replay.rendezvous import meetings
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.steps import step_rows, step_to_show
from engine.recording.tables import Recording

What = Literal["compute", "communication", "idle"]


@dataclass(frozen=True)
class PathPiece:
    """A stretch of the path, in ns of the recording's clock. `seq` is the row on `rank`, None where there is none."""

    rank: int
    seq: int | None
    start_ns: int
    end_ns: int
    what: What
    name: str


def critical_path(recording: Recording, step: int | None = None) -> tuple[PathPiece, ...]:
    """The pieces in the order of time, each beginning where the one before ends.

    In a replay on devices that never wait for their host they are all work and communication; otherwise, and in a
    measured step, there is also time of the host between two rows.
    Raises `ValueError` if the step was not recorded on every rank.
    """
    rows = step_rows(recording, step_to_show(recording) if step is None else step)
    walk = _Walk(rows)
    walk.run()
    return tuple(reversed(walk.pieces))


def path_totals(path: Iterable[PathPiece]) -> dict[What, int]:
    """ns of the path by kind; their sum is the length of the step."""
    totals: Counter[What] = Counter({"compute": 0, "communication": 0, "idle": 0})
    for piece in path:
        totals[piece.what] += piece.end_ns - piece.start_ns
    return dict(totals)


class _Walk:
    """Goes back in time; `row` is what the rank had reached at `time`."""

    def __init__(self, rows: StepRows) -> None:
        self.together = meetings(rows)
        self.rank, self.name, self.seq = rows.rank.tolist(), rows.name, rows.ints("seq").tolist()
        self.parent, self.ref = rows.parent.tolist(), rows.ref.tolist()
        self.start, self.end = rows.start.tolist(), rows.end.tolist()
        self.compute, self.blocking = rows.is_compute.tolist(), rows.is_blocking.tolist()
        self.meeting, self.previous = self.together.of_row.tolist(), self.together.previous.tolist()
        on_main = [i for i, (a, b) in enumerate(zip(self.compute, self.blocking, strict=True)) if a or b]
        self.origin = min(self.start[i] for i in on_main)
        last = max(on_main, key=lambda i: (self.end[i], -i))
        self.time = self.end[last]
        self.row = next((i for i in range(last, len(self.rank)) if self.rank[i] != self.rank[last]), len(self.rank))
        self.on = self.rank[last]
        self.pieces: list[PathPiece] = []
        self.seen: set[int] = set()

    def run(self) -> None:
        while self.row > 0 and self.rank[self.row - 1] == self.on:
            self._back(self.row - 1)
        self._piece("idle", None, self.origin, "before its first operation")

    def _piece(self, what: What, row: int | None, start: int, name: str) -> None:
        """The path from `start` to where it has been followed to; nothing if clocks or ties make that empty."""
        start = max(start, self.origin)
        if start < self.time:
            seq = None if row is None else self.seq[row]
            self.pieces.append(PathPiece(self.on, seq, start, self.time, what, name))
            self.time = start

    def _back(self, before: int) -> None:
        """One row back on the same rank, or over to another."""
        inside = self.parent[before]
        if self.row < len(self.rank) and self.rank[self.row] == self.on and self.parent[self.row] == before:
            self._piece("compute", before, self.start[before], self.name[before])
            self.row = before
        elif self.blocking[before]:
            if inside >= 0:
                self._idle_until(self.end[inside])
                self._piece("compute", inside, self.end[before], self.name[inside])
            self._idle_until(self.end[before])
            self._through(before)
        elif self.compute[before]:
            self._idle_until(self.end[before])
            self._piece("compute", before, self.start[before], self.name[before])
            self.row = before
        else:
            self.row = before  # communication that was only started here

    def _idle_until(self, end: int) -> None:
        self._piece("idle", None, end, "between two operations")

    def _through(self, row: int) -> None:
        """Back through a row that blocked, to the row that everybody waited for."""
        awaited = row if self.ref[row] < 0 else self.ref[row]
        meeting = self.meeting[awaited]
        if meeting < 0 or row in self.seen or self._was_there(row, awaited):
            self._piece("idle", None, self.start[row], self.name[row])
            self.row = row
            return
        self.seen.add(row)
        while True:
            members = self.together.members(meeting)
            last = max(members, key=lambda i: (self.start[i], self.rank[i] == self.on))
            shown = next((i for i in members if self.rank[i] == self.on), last)
            began = min(self.start[last], self.time)
            self._piece("communication", shown, began, self.name[shown])
            self.on = self.rank[last]
            behind = self.previous[last]
            if behind < 0 or self.end[self.together.members(behind)[0]] != began:
                break
            meeting = behind  # it had to queue for this one
        self.row = last

    def _was_there(self, wait: int, awaited: int) -> bool:
        """Whether a wait found what it waits for already done."""
        return wait != awaited and self.end[awaited] <= self.start[wait]
