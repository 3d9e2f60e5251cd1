"""What a timeline draws: where each box goes and what it says, before any drawing is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.job.axes import AXES
from engine.job.errors import Unknown
from engine.job.mesh import Mesh
from engine.prediction.replay.rows import Mask, Numbers, StepRows
from engine.program.kinds import ROLES, Kind, kind_of_row
from lab.analysis.step.idle import Idle, idle_spans
from lab.analysis.step.overlap import blocking, communicating
from lab.analysis.step.step_ops import window_of
from lab.views.figures.style.palette import Palette
from lab.wording import axis_name, axis_order, nbytes, seconds

CATEGORIES = ("forward", "backward", "weight", "step", "tensor", "data", "pipeline", "idle")
COMPUTING = 4  # of them, the first
NOT_DRAWN = len(CATEGORIES)
LABELS = {
    "forward": "forward",
    "backward": "backward",
    "weight": "weight gradients",
    "step": "optimizer step",
    "tensor": "tensor collectives",
    "data": "data collectives",
    "pipeline": "pipeline messages",
    "idle": "idle",
}
_CATEGORY_OF_PART = {"batch": "data", "tensors": "tensor", "layers": "pipeline"}
"""By what an axis divides."""
_CATEGORY_OF_OTHERS = {"world": "data", "tie": "pipeline"}

COMPUTE_HEIGHT, THIN_HEIGHT = 0.52, 0.14  # of the distance between two ranks


@dataclass
class Boxes:
    """Boxes of one category, as columns. Times in ms since the step's start; y in ranks, downwards."""

    start: list[float] = field(default_factory=list)
    length: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    height: list[float] = field(default_factory=list)
    hover: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Lanes:
    """A step laid out: ranks from top to bottom, a thick compute lane each and a thin one for each busy
    axis. offset: how far down the first rank lies.
    """

    ops: StepRows
    mesh: Mesh
    origin: int
    end: int
    order: list[int]
    axes: tuple[str, ...]
    offset: float = 0.0

    @property
    def milliseconds(self) -> float:
        return (self.end - self.origin) / 1e6

    def row_of(self, ranks: Numbers) -> NDArray[np.float64]:
        """Position from the top of each rank."""
        place = np.zeros(max(self.order) + 1)
        place[self.order] = np.arange(len(self.order)) + self.offset
        return place[ranks]

    def thin_y(self, axis: str) -> float:
        """Where the thin lane of an axis lies below its rank's compute lane."""
        return COMPUTE_HEIGHT / 2 + THIN_HEIGHT * (self.axes.index(axis) + 0.6)


def lay_out(ops: StepRows, mesh: Mesh) -> Lanes:
    """Ranks come in pipeline order, so that a schedule reads as its staircase, whatever the rank order."""
    origin, end = window_of(ops)
    order = sorted(ops.ranks, key=lambda r: mesh.coordinate(r).by_stage)
    counted, _ = communicating(ops)
    present = set(ops.axis[counted & ~blocking(ops)])
    return Lanes(ops, mesh, origin, end, order, tuple(a for a in axis_order() if a in present))


def categories(ops: StepRows) -> NDArray[np.object_]:
    """The category of every row; "" for what is not drawn: waits (drawn as idle), and sends (drawn at the
    receiver).
    """
    return np.array([*CATEGORIES, ""], object)[category_codes(ops, communicating(ops)[0])]


def category_codes(ops: StepRows, counted: Mask) -> NDArray[np.uint8]:
    """The same as places in `CATEGORIES`, `NOT_DRAWN` for none. counted: see `communicating`."""
    found = np.full(len(ops.rank), NOT_DRAWN, np.uint8)
    kinds = pc.dictionary_encode(ops.table["kind"].combine_chunks())
    of_kind = np.array([_of_role(kind_of_row(name)) for name in kinds.dictionary.to_pylist()], np.uint8)
    of_kind = of_kind[kinds.indices.to_numpy()]
    computing, talking = ops.is_compute, counted & ~ops.in_norm
    by_kind = computing | (talking & (of_kind != NOT_DRAWN))
    found[by_kind] = of_kind[by_kind]
    by_axis = np.flatnonzero(talking & ~by_kind)
    axes = pc.dictionary_encode(pa.array(ops.axis[by_axis], pa.string()))
    codes = np.array([CATEGORIES.index(_of_axis(axis)) for axis in axes.dictionary.to_pylist()], np.uint8)
    found[by_axis] = codes[axes.indices.to_numpy()]
    return found


def _of_role(kind: Kind | None) -> int:
    """The place of a kind's own category; `NOT_DRAWN` for one that has that of its axis."""
    if kind is None or not kind.role:
        return NOT_DRAWN
    if kind.role not in ROLES:
        raise Unknown("role of an action kind", kind.role, ROLES)
    return CATEGORIES.index(kind.role)


def _of_axis(axis: str) -> str:
    return _CATEGORY_OF_OTHERS[axis] if axis in _CATEGORY_OF_OTHERS else _CATEGORY_OF_PART[AXES[axis].divides]


def drawn(ops: StepRows) -> tuple[Numbers, Numbers, NDArray[np.uint8]]:
    """(rows that are boxes, ns at which each row of the step begins to be drawn, place of its category)."""
    counted, start = communicating(ops)
    codes = category_codes(ops, counted)
    return np.flatnonzero((codes != NOT_DRAWN) & (ops.end > start)), start, codes


def boxes(lanes: Lanes, p: Palette) -> dict[str, Boxes]:
    """Every box of the timeline, by category."""
    ops, found = lanes.ops, {name: Boxes() for name in CATEGORIES}
    shown, start, codes = drawn(ops)
    inside = blocking(ops)
    rows = lanes.row_of(ops.rank)
    for i in shown.tolist():
        thin = not (ops.on_compute[i] or inside[i])
        y = rows[i] + (lanes.thin_y(str(ops.axis[i])) if thin else 0.0)
        height = THIN_HEIGHT * 0.8 if thin else COMPUTE_HEIGHT * (0.55 if inside[i] else 1)
        _put(
            found[CATEGORIES[codes[i]]],
            lanes,
            int(start[i]),
            int(ops.end[i]),
            y,
            height,
            _words(lanes, i, int(start[i])),
        )
    for idle in idle_spans(ops):
        y = float(lanes.row_of(np.array([idle.rank]))[0])
        length = seconds((idle.end_ns - idle.start_ns) / 1e9)
        hover = f"<b>idle, {ops.rank_names[idle.rank]}</b> for {length}<br>{idle_words(idle)}"
        _put(found["idle"], lanes, idle.start_ns, idle.end_ns, y, COMPUTE_HEIGHT, hover)
    return found


def idle_words(idle: Idle) -> str:
    """What a rank that stands idle does."""
    if idle.cause in ("done", "host"):
        return idle.why
    return f"waits: {idle.why}" if idle.why.startswith("the ") else f"waits {idle.why}"


def _put(box: Boxes, lanes: Lanes, start: int, end: int, y: float, height: float, hover: str) -> None:
    box.start.append((start - lanes.origin) / 1e6)
    box.length.append((end - start) / 1e6)
    box.y.append(float(y))
    box.height.append(height)
    box.hover.append(hover)


def _words(lanes: Lanes, i: int, start: int) -> str:
    """What a box says when pointed at."""
    ops = lanes.ops
    begin, length = (start - lanes.origin) / 1e9, (int(ops.end[i]) - start) / 1e9
    lines = [
        f"<b>{ops.name[i]}</b>, {ops.rank_names[int(ops.rank[i])]}",
        f"{seconds(length)}, from {seconds(begin)} on",
    ]
    if not ops.on_compute[i]:
        lines += communication_words(ops, i)
    return "<br>".join(lines)


def communication_words(ops: StepRows, i: int) -> tuple[str, str]:
    """How much row `i` moves, and between whom."""
    who = ", ".join(map(str, ops.peers[i][:8])) + (", …" if len(ops.peers[i]) > 8 else "")
    return (
        f"{nbytes(int(ops.logical[i]))} by the algorithm, {nbytes(int(ops.wire[i]))} on the wire",
        f"{axis_name(str(ops.axis[i]))} axis, ranks {who}",
    )


def labels(lanes: Lanes, pixels: float) -> Iterator[tuple[float, float, str, str]]:
    """(ms, y, text, category): the micro-batch of each run of boxes of one stage, where it fits.

    pixels: how long the whole step is drawn. A run with gaps in it is labelled in its longest box.
    """
    ops, names = lanes.ops, categories(lanes.ops)
    for _, rows in ops.by_rank():
        mine = np.flatnonzero(ops.is_compute[rows] & (ops.microbatch[rows] >= 0)) + rows.start
        for run in _runs(ops, mine):
            lengths = ops.end[run] - ops.start[run]
            first, last = int(ops.start[run[0]]), int(ops.end[run[-1]])
            if lengths.sum() < 0.9 * (last - first):
                longest = run[lengths.argmax()]
                first, last = int(ops.start[longest]), int(ops.end[longest])
            text = str(ops.microbatch[run[0]])
            if (last - first) / max(lanes.end - lanes.origin, 1) * pixels >= 7 * len(text) + 4:
                y = float(lanes.row_of(ops.rank[run[:1]])[0])
                yield ((first + last) / 2 - lanes.origin) / 1e6, y, text, str(names[run[0]])


def _runs(ops: StepRows, mine: Numbers) -> list[Numbers]:
    """Consecutive computations of one kind, stage and micro-batch."""
    if not len(mine):
        return []
    same: Mask = np.ones(len(mine) - 1, bool)
    for column in (ops.kind, ops.stage, ops.microbatch):
        same &= np.asarray(column[mine][1:] == column[mine][:-1], bool)
    return np.split(mine, np.flatnonzero(~same) + 1)
