"""The timeline of one step in characters: a line for each rank, time to the right. Readable without
colour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.job.errors import Unknown
from engine.job.mesh import Mesh
from engine.prediction.replay.rows import StepRows
from engine.program.kinds import KINDS, Kind
from engine.recording.tables import Recording
from lab.analysis.step.idle import busy
from lab.analysis.step.intervals import Spans, both, covered, length, spans, without
from lab.analysis.step.overlap import blocking
from lab.analysis.step.step_ops import step_ops, window_of

IDLE, COMMUNICATION = "idle", "communication"
_STYLE_OF_ROLE = {
    "forward": "bold #ffffff on #0061a4",
    "backward": "bold #000000 on #e69f00",
    "weight": "bold #000000 on #f0e442",
    "step": "bold #ffffff on #00704f",
}
_STYLES = {
    Kind.RECOMPUTE.name: "bold #000000 on #56b4e9",
    COMMUNICATION: "bold #b0528a",
    IDLE: "dim",
}
MARK = {COMMUNICATION: "=", IDLE: "·"}
MAX_ROWS = 16


def style_of(what: str) -> str:
    """How `Piece.what` looks. Raises `Unknown` for a kind of action, or a role of one, that there is not."""
    if what in _STYLES:
        return _STYLES[what]
    role = KINDS[what].role
    if role not in _STYLE_OF_ROLE:
        raise Unknown("role of an action kind", role, _STYLE_OF_ROLE)
    return _STYLE_OF_ROLE[role]


@dataclass(frozen=True)
class Piece:
    """Neighbouring cells of one line that show the same thing: the name of a kind of action, or a key of MARK."""

    what: str
    text: str


@dataclass(frozen=True)
class Line:
    """One rank's line. `busy` is the fraction of the step in which it ran forward, backward or the
    optimizer.
    """

    rank: int
    pieces: tuple[Piece, ...]
    busy: float
    stands_for: int = 1
    """How many ranks do what this one does."""

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True)
class TextTimeline:
    """`left_out` ranks have no line, for want of room."""

    lines: tuple[Line, ...]
    seconds: float
    left_out: int

    def kinds(self) -> list[str]:
        """What occurs in the picture, in the order of the legend."""
        shown = {piece.what for line in self.lines for piece in line.pieces}
        shown |= {COMMUNICATION for line in self.lines if MARK[COMMUNICATION] in line.text}
        return [what for what in (*KINDS.names, COMMUNICATION, IDLE) if what in shown]


def text_timeline(recording: Recording, mesh: Mesh, step: int, width: int = 80) -> TextTimeline:
    """The picture of a step in `width` cells: each shows what its rank did for most of that time.

    Lines are sorted by pipeline coordinate, so that a schedule shows its staircase. With more than 16 ranks
    each pipeline coordinate is shown by its first ranks only.
    """
    ops = step_ops(recording, step)
    start, end = window_of(ops)
    edges = np.linspace(start, end, width + 1).astype(np.int64)
    rows = dict(ops.by_rank())
    shown = _chosen(mesh, sorted(rows))
    lines = tuple(_line(ops, rank, rows[rank], edges) for rank in shown)
    left_out = sum(ops.weight.values()) - sum(line.stands_for for line in lines)
    return TextTimeline(lines, (end - start) / 1e9, left_out)


def _chosen(mesh: Mesh, ranks: list[int]) -> list[int]:
    ordered = sorted(ranks, key=lambda rank: mesh.coordinate(rank).by_stage)
    if len(ordered) <= MAX_ROWS:
        return ordered
    pipeline = mesh.degree("pp")
    each = max(1, MAX_ROWS // pipeline)
    count: dict[int, int] = {}
    chosen = []
    for rank in ordered:
        pp_rank = mesh.coordinate(rank)["pp"]
        count[pp_rank] = count.get(pp_rank, 0) + 1
        if count[pp_rank] <= each:
            chosen.append(rank)
    return chosen[: max(MAX_ROWS, pipeline)]


def _line(ops: StepRows, rank: int, rows: slice, edges: NDArray[np.int64]) -> Line:
    owners = list(_owners(ops, rows))
    inside = _spans(ops, rows, blocking(ops)[rows])
    cell = np.diff(edges)
    times = np.stack([covered(when, edges) for _, _, when in owners] or [np.zeros(len(cell))])
    times = np.vstack([times, cell - times.sum(axis=0)])  # the last row is idle time
    winner = times.argmax(axis=0)
    talking = np.zeros(len(cell), bool)
    for i, (_, _, when) in enumerate(owners):
        talking |= (winner == i) & (covered(both(when, inside), edges) > times[i] / 2)
    pieces = tuple(_pieces([(what, k) for what, k, _ in owners] + [(IDLE, -1)], winner, talking))
    return Line(rank, pieces, length(busy(ops, rows)) / max(int(edges[-1] - edges[0]), 1), ops.weight[rank])


def _owners(ops: StepRows, rows: slice) -> Iterator[tuple[str, int, Spans]]:
    """(what, micro-batch, when) of everything that can fill a cell besides idle time; the times are
    disjoint.
    """
    waits = ops.is_wait[rows] & ops.on_compute[rows]
    waiting = _spans(ops, rows, waits)
    kind, microbatch = ops.kind[rows], ops.microbatch[rows]
    work = ops.is_compute[rows]
    for what, k in sorted({(str(a), int(b)) for a, b in zip(kind[work], microbatch[work], strict=True)}):
        yield what, k, without(_spans(ops, rows, (kind == what) & (microbatch == k)), waiting)
    # waiting for a message is idleness of the pipeline; waiting for a collective is communication in the open
    awaited = ops.ref[rows]
    on_axis = np.where(awaited >= 0, ops.axis[np.maximum(awaited, 0)], "pp")
    yield COMMUNICATION, -1, _spans(ops, rows, waits & (on_axis != "pp"))


def _spans(ops: StepRows, rows: slice, mask: NDArray[np.bool_]) -> Spans:
    return spans(ops.start[rows][mask], ops.end[rows][mask])


def _pieces(owners: list[tuple[str, int]], winner: NDArray[np.int64], talking: NDArray[np.bool_]) -> Iterator[Piece]:
    turns = np.flatnonzero(np.diff(winner)) + 1
    for cells in np.split(np.arange(len(winner)), turns):
        what, k = owners[int(winner[cells[0]])]
        if what in MARK:
            yield Piece(what, MARK[what] * len(cells))
            continue
        letter = KINDS[what].letter
        label = f"{letter}{k}" if k >= 0 else letter
        label = label if len(label) <= len(cells) else letter
        rest = cells[len(label) :]
        yield Piece(what, label + "".join(MARK[COMMUNICATION] if talking[i] else letter.lower() for i in rest))
