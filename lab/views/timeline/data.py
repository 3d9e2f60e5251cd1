"""What the timeline's script draws, as packed columns: one entry a box, vectorised, with tables for its words.

A row number ("op") is that of `lab.analysis.step_ops(recording, step)`; idle stretches have none.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.prediction.replay.rows import Numbers, StepRows
from engine.program.kinds import Kind
from engine.recording.tables import Recording
from lab.analysis import CAUSES
from lab.analysis.recorded_run import RecordedRun
from lab.analysis.step.idle import Idle, idle_spans
from lab.analysis.step.overlap import blocking, messages
from lab.analysis.step.step_ops import step_ops, typical_step
from lab.views.figures.pipeline.bubble import NAMES
from lab.views.figures.style.palette import PALETTES, Palette, ink_on
from lab.views.figures.timeline.comparison import MEASURED, PREDICTED, comparison_title, replayed_step
from lab.views.figures.timeline.lanes import CATEGORIES, LABELS, Lanes, communication_words, drawn, idle_words, lay_out
from lab.views.figures.timeline.timeline import timeline_title
from lab.views.timeline.summary import how_to_read, summary
from lab.wording import axis_name, axis_order

Data = dict[str, Any]
Column = NDArray[Any]

NO_CAUSE = 255
"""In column `cause`, for what is not idle."""
_COMPUTE, _INSIDE, _FIRST_THIN = 0, 1, 2  # places within a rank's lane
_TYPES = {"<f4": "f32", "<i4": "i32", "<i2": "i16", "<u2": "u16", "|u1": "u8"}


def timeline_data(
    recording: Recording,
    job: Job,
    step: int | None = None,
    predicted: Recording | None = None,
    *,
    by_hand: bool = False,
    of: str = MEASURED,
) -> Data:
    """Everything that the timeline shows of a step, by default the typical one; columns are bytes.

    predicted: a replay or simulation of the same job, laid over it; of: what lies beneath is called. by_hand: the
    program is not the job's own, so that no formula is known for it. Times are ms since the step's start, each
    recording's own. Raises `NoStep` for a step
    that was not recorded; without any completed step there is nothing to draw, and `layers` is empty.
    """
    step = typical_step(recording) if step is None else step
    if step is None:
        words = "No step was completed, so there is nothing to draw."
        return {**_frame((), {}), "title": words, "summary": words, "how": "", "layers": []}
    mesh = mesh_of(job)
    laid = [lay_out(step_ops(recording, step), mesh)]
    title = timeline_title(recording, job, step, by_hand)
    if predicted is not None:
        laid.append(lay_out(step_ops(predicted, replayed_step(predicted, step)), mesh))
        title = comparison_title(laid[0], laid[1], step)
    axes = [axis for axis in axis_order() if any(axis in lanes.axes for lanes in laid)]
    idle = [idle_spans(lanes.ops) for lanes in laid]
    names = {rank: _rank(lanes, rank) for lanes in laid[::-1] for rank in lanes.order}
    order = sorted(names, key=lambda r: mesh.coordinate(r).by_stage)
    return {
        **_frame(axes, {rank: names[rank] for rank in order}),
        "title": title,
        "summary": summary(laid, idle),
        "how": how_to_read(axes, predicted is not None),
        "step": step,
        "layers": [
            _layer(name, lanes, spans, order, axes)
            for name, lanes, spans in zip((of, PREDICTED), laid, idle, strict=False)
        ],
    }


def timeline_of_run(run: RecordedRun, step: int | None = None, predicted: Recording | None = None) -> Data:
    """As `timeline_data`, of a run: the title says whose times they are. predicted: laid over it."""
    simulated = run.status == "simulated"
    where, of = (f"On {run.summary['cluster']}", "replayed") if simulated else ("Measured here", MEASURED)
    by_hand = run.summary["bubble"]["formula"] is None
    data = timeline_data(run.recording, run.job, step, predicted, by_hand=by_hand, of=of)
    return data | {"title": f"{where}. {data['title']}"}


def portable(data: Data) -> Data:
    """The same with its columns in base64, so that it can be written as JSON."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value

    found: Data = plain(data)
    return found


def _frame(axes: Sequence[str], ranks: dict[int, dict[str, str]]) -> Data:
    """What does not depend on the boxes: colours and names."""
    return {
        "palettes": {theme: _colours(p) for theme, p in PALETTES.items()},
        "categories": [LABELS[name] for name in CATEGORIES],
        "causes": [NAMES[cause].removeprefix("idle: ") for cause in CAUSES],
        "axes": [axis_name(axis) for axis in axes],
        "ranks": [{"rank": rank, **words} for rank, words in ranks.items()],
    }


def _colours(p: Palette) -> Data:
    return {
        "paper": p.paper, "ink": p.ink, "faint": p.faint, "grid": p.grid, "idle": p.idle, "pale": p.idle_raster,
        "fills": list(p.every), "inks": [ink_on(colour) for colour in p.every],
    }  # fmt: skip


def _rank(lanes: Lanes, rank: int) -> dict[str, str]:
    """Its name, and its coordinates on the axes that have more than one; none where it stands for other places."""
    at = lanes.mesh.coordinate(rank)
    where = [f"{axis}{place}" for axis, place in at.items() if lanes.mesh.degree(axis) > 1]
    return {"name": lanes.ops.rank_names[rank], "where": "" if lanes.ops.stands_for else " ".join(where)}


def _layer(name: str, lanes: Lanes, idle: Sequence[Idle], order: list[int], axes: Sequence[str]) -> Data:
    ops = lanes.ops
    place = np.zeros(max(order) + 1, np.int64)
    place[order] = np.arange(len(order))
    texts: list[str] = []
    parts = [_boxes(lanes, place, axes, texts), _idle(idle, lanes, place, texts)]
    found = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
    in_lanes = np.lexsort((found["start"], found["sub"], found["lane"]))
    return {
        "name": name,
        "step": int(ops.table["step"][0].as_py()),
        "length": lanes.milliseconds,
        "count": len(in_lanes),
        "columns": {column: _packed(values[in_lanes]) for column, values in found.items()},
        "messages": {column: _packed(values) for column, values in _messages(lanes, place).items()},
        "texts": texts,
    }


def _packed(values: Column) -> Data:
    little = values.astype(values.dtype.newbyteorder("<"))
    return {"type": _TYPES[little.dtype.str], "data": little.tobytes()}


def _milliseconds(ns: Numbers, origin: int) -> NDArray[np.float32]:
    return np.asarray((ns - origin) / 1e6, np.float32)


def _boxes(lanes: Lanes, place: Numbers, axes: Sequence[str], texts: list[str]) -> dict[str, Column]:
    """What ranks did. Puts the words needed into `texts`."""
    ops = lanes.ops
    rows, start, codes = drawn(ops)
    inside = blocking(ops)[rows]
    sub = np.where(inside, _INSIDE, _COMPUTE)
    thin = ~ops.on_compute[rows] & ~inside
    for i, axis in enumerate(axes):
        sub[thin & (ops.axis[rows] == axis)] = _FIRST_THIN + i
    words = pc.dictionary_encode(ops.table["name"].combine_chunks())
    texts += words.dictionary.to_pylist()
    return {
        "start": _milliseconds(start[rows], lanes.origin),
        "length": _milliseconds(ops.end[rows] - start[rows], 0),
        "lane": np.asarray(place[ops.rank[rows]], np.uint16),
        "sub": np.asarray(sub, np.uint8),
        "category": codes[rows],
        "cause": np.full(len(rows), NO_CAUSE, np.uint8),
        "micro": np.asarray(ops.microbatch[rows], np.int32),
        "stage": np.asarray(ops.stage[rows], np.int16),
        "op": np.asarray(rows, np.int32),
        "text": np.asarray(words.indices.to_numpy()[rows], np.int32),
        "detail": _details(ops, rows, texts),
    }


def _details(ops: StepRows, rows: Numbers, texts: list[str]) -> Column:
    """For each row the text that says what it moves and between whom, -1 for a computation."""
    found, moving = np.full(len(rows), -1, np.int32), np.flatnonzero(~ops.on_compute[rows])
    if not len(moving):
        return found
    mine = rows[moving]
    lists = np.fromiter(map(id, ops.peers), np.int64, len(ops.peers))  # equal lists of peers are one list
    code = np.zeros(len(mine), np.int64)
    for column in (ops.logical[mine], ops.wire[mine], lists[mine], pa.array(ops.axis[mine], pa.string())):
        alike = pc.dictionary_encode(column if isinstance(column, pa.Array) else pa.array(column))
        code = code * len(alike.dictionary) + alike.indices.to_numpy()
    same = pc.dictionary_encode(pa.array(code)).indices.to_numpy()  # numbered as they first come
    _, first = np.unique(same, return_index=True)
    found[moving] = len(texts) + same
    texts += ["\n".join(communication_words(ops, row)) for row in mine[first].tolist()]
    return found


def _idle(found: Sequence[Idle], lanes: Lanes, place: Numbers, texts: list[str]) -> dict[str, Column]:
    """Every stretch in which a rank stood idle, and why."""
    start = np.array([idle.start_ns for idle in found], np.int64)
    end = np.array([idle.end_ns for idle in found], np.int64)
    known: dict[str, int] = {}
    text = [known.setdefault(idle_words(idle), len(texts) + len(known)) for idle in found]
    texts += known
    none = np.full(len(found), -1, np.int32)
    return {
        "start": _milliseconds(start, lanes.origin),
        "length": _milliseconds(end - start, 0),
        "lane": np.asarray(place[np.array([idle.rank for idle in found], np.int64)], np.uint16),
        "sub": np.full(len(found), _COMPUTE, np.uint8),
        "category": np.full(len(found), CATEGORIES.index("idle"), np.uint8),
        "cause": np.array([CAUSES.index(idle.cause) for idle in found], np.uint8),
        "micro": none,
        "stage": none.astype(np.int16),
        "op": none,
        "text": np.array(text, np.int32),
        "detail": none,
    }


def _messages(lanes: Lanes, place: Numbers) -> dict[str, Column]:
    """Messages from stage to stage, from when they are sent until they are there or picked up."""
    ops = lanes.ops
    received, sent = messages(ops)
    return {
        "sent": _milliseconds(ops.start[sent], lanes.origin),
        "there": _milliseconds(ops.end[received], lanes.origin),
        "from_lane": np.asarray(place[ops.rank[sent]], np.uint16),
        "to_lane": np.asarray(place[ops.rank[received]], np.uint16),
        "from_stage": np.asarray(ops.stage[sent], np.int16),
        "to_stage": np.asarray(ops.stage[received], np.int16),
        "micro": np.asarray(ops.microbatch[received], np.int32),
        "backward": np.asarray(ops.among("kind", Kind.RECV_GRAD.name)[received], np.uint8),
        "send_op": np.asarray(sent, np.int32),
        "op": np.asarray(received, np.int32),
    }
