"""The rows of one pipeline rank as columns.

A value of a row follows from the part of the script that it belongs to (its micro-batch, its unit) or from its piece
of the part's template (its FLOPs, its stream). `Layout` says which part and which piece each row is, so each value is
found once a part, or once a distinct piece, and spread over the rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.job.errors import Unknown
from engine.job.mesh import Mesh
from engine.prediction.op_templates.templates import SELF, Piece
from engine.prediction.rehearsal.script import Part
from engine.prediction.replay.rows import whole
from engine.recording.columns import COLUMNS, table_of_arrays
from engine.recording.tables import Op

Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

TICK = 1000
"""A rehearsed row starts at TICK × its position and ends half a tick later: an order of events, not times."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Which part of the script each row belongs to, and which of the distinct pieces it is.

    part, piece: of each row, its place in `script` and in `pieces`. begins: of each part, its first row, with the
    number of all rows as a last entry.
    """

    script: Sequence[Part]
    pieces: Sequence[Piece]
    part: Numbers
    piece: Numbers
    begins: Numbers

    @cached_property
    def row(self) -> Numbers:
        """Each row's own number."""
        return np.arange(len(self.part))

    @cached_property
    def head(self) -> Numbers:
        """The first row of each row's part: that of the action or wait itself; the others happen inside it."""
        return self.begins[self.part]

    @cached_property
    def inside(self) -> Mask:
        """The rows that are not their part's head: collectives inside a computation."""
        return np.asarray(self.row != self.head)

    @cached_property
    def waits(self) -> Mask:
        """The rows of waits."""
        return self.by_part([part.awaits >= 0 for part in self.script]).astype(bool)

    def by_part(self, values: Sequence[int]) -> Numbers:
        """A number of each part, spread over the rows."""
        return np.array(values, np.int64)[self.part]

    def by_piece(self, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
        """A value of each distinct piece, spread over the rows."""
        return pa.array(values, kind).take(whole(self.piece))


def layout_of(script: Sequence[Part]) -> Layout:
    """The rows of a script: each part has one for each piece of its template."""
    lengths = np.array([len(part.template) for part in script], np.int64)
    places: dict[int, Numbers] = {}  # of each distinct template, its pieces' places
    pieces: list[Piece] = []
    for part in script:
        if id(part.template) not in places:
            places[id(part.template)] = np.arange(len(part.template)) + len(pieces)
            pieces += part.template
    piece = [places[id(part.template)] for part in script]
    return Layout(
        script,
        pieces,
        part=np.repeat(np.arange(len(script)), lengths),
        piece=np.concatenate(piece) if piece else np.empty(0, np.int64),
        begins=np.append(0, np.cumsum(lengths)),
    )


def shared_columns(layout: Layout) -> dict[str, pa.Array]:
    """All columns that are alike on every rank of the pipeline rank."""
    return _order(layout) | _places(layout) | _words(layout) | _costs(layout)


def _order(layout: Layout) -> dict[str, pa.Array]:
    """Positions, and times that stand for them."""
    row, head = layout.row, layout.head
    last = layout.begins[layout.part + 1] - 1
    awaited = layout.by_part([part.awaits for part in layout.script])
    zero = np.zeros(len(row), np.int64)
    numbers = {
        "step": zero,
        "seq": row,
        "parent": np.where(layout.inside, head, -1),
        "ref": np.where(awaited >= 0, layout.begins[awaited], -1),
        "start_ns": TICK * row,
        "end_ns": np.where(layout.inside, TICK * row + TICK // 2, TICK * last + TICK // 2 + 1),
        "cpu_ns": zero,
    }
    return {name: whole(values) for name, values in numbers.items()}


def _places(layout: Layout) -> dict[str, pa.Array]:
    """Where in the model and the batch a row is; a wait is nowhere."""
    actions = [part.action for part in layout.script]
    microbatch = layout.by_part([-1 if a.microbatch is None else a.microbatch for a in actions])
    stage = layout.by_part([-1 if a.stage is None else a.stage for a in actions])
    units = pa.array([*(a.unit for a in actions), ""])
    return {
        "microbatch": whole(np.where(layout.waits, -1, microbatch)),
        "stage": whole(np.where(layout.waits, -1, stage)),
        "unit": units.take(whole(np.where(layout.waits, len(actions), layout.part))),
    }


def _words(layout: Layout) -> dict[str, pa.Array]:
    pieces = layout.pieces
    words = {
        name: layout.by_piece([getattr(piece, name) for piece in pieces], pa.string())
        for name in ("stream", "kind", "op", "group")
    }
    names = pa.array([*(part.label for part in layout.script), *(piece.name for piece in pieces)])
    which = np.where(layout.inside, len(layout.script) + layout.piece, layout.part)
    return words | {"name": names.take(whole(which))}


def _costs(layout: Layout) -> dict[str, pa.Array]:
    """What each piece costs, and the columns that were plugged in."""
    ops = [piece.row for piece in layout.pieces]
    built_in = {"rank", "peers", *(one.name for one in fields(Op))}
    return {
        column.name: layout.by_piece([column.of(op) for op in ops], column.arrow)
        for column in COLUMNS["ops"]
        if column.name not in built_in
    }


def ops_of(layout: Layout, shared: dict[str, pa.Array], rank: int, mesh: Mesh, tie: Sequence[int]) -> pa.Table:
    """The rows as `rank` writes them. shared: see `shared_columns`; tie: see `_peers`."""
    of_axis = {axis: _peers(axis, rank, mesh, tie) for axis in {piece.axis for piece in layout.pieces}}
    peers = layout.by_piece([of_axis[piece.axis] for piece in layout.pieces], pa.list_(pa.int32()))
    return table_of_arrays("ops", shared | {"rank": whole(np.full(len(layout.row), rank)), "peers": peers})


def _peers(axis: str, rank: int, mesh: Mesh, tie: Sequence[int]) -> list[int]:
    """Who takes part in what a row does; axis "pp3" is a message to or from pipeline rank 3.

    tie: the pipeline ranks that hold copies of one matrix.
    """
    if axis in mesh.axes:
        return mesh.group(axis, rank)
    if axis == SELF:
        return [rank]
    if axis == "tie":
        pipeline = mesh.group("pp", rank)
        return [pipeline[pp_rank] for pp_rank in tie]
    if not axis:
        return []
    if re.fullmatch(r"pp\d+", axis):
        return [rank, mesh.rank(**{**mesh.coordinate(rank), "pp": int(axis.removeprefix("pp"))})]
    raise Unknown("axis", axis, (*mesh.axes, "tie"))
