"""Rehearsal: the recording of any job without its processes, however large the model.

Each distinct unit is executed once, at full size, on the meta device (`engine.prediction.rehearsal.meta_templates`);
the rows found there are stamped out for every action of the program. A rehearsed recording holds the operations that
the real run would record, in the same order, without times: a replay gives it those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.job.errors import Unknown
from engine.job.job import Job
from engine.job.mesh import Mesh, mesh_of
from engine.model.buckets import lane_buckets
from engine.model.unit_kinds import kind_of
from engine.model.units import boundary_bytes, token_lanes
from engine.prediction.formulas import state_bytes
from engine.prediction.peak_memory import Change, lane_changes
from engine.prediction.rehearsal.template_cache import alone_templates, unit_templates
from engine.prediction.rehearsal.templates import (
    SELF,
    WAIT,
    Piece,
    Template,
    Templates,
    communication_template,
)
from engine.prediction.replay.rows import whole
from engine.program.compile import compile_job
from engine.program.dependencies import Waits, waits
from engine.program.kinds import Kind
from engine.program.program import Action, Program, boundary
from engine.recording.tables import CATEGORIES, MEMORY_SCHEMA, METRICS_SCHEMA, OPS_SCHEMA, Recording

Numbers = NDArray[np.int64]
TICK = 1000
"""A rehearsed row starts at TICK × its position and ends half a tick later: an order of events, not times."""


def rehearse(
    job: Job,
    program: Program | None = None,
    ranks: Sequence[int] | None = None,
    backend: str = "gloo",
    kept: Path | None = None,
) -> Recording:
    """One step of `job`, as `ranks` (default: all) would record it.

    program: of a schedule written by hand; it must have been checked. backend: whose wire bytes are counted. kept: a
    folder to keep templates in, see `engine.prediction.rehearsal.template_cache`.
    """
    program, mesh = program or compile_job(job), mesh_of(job)
    chosen = range(mesh.size) if ranks is None else ranks
    lanes: dict[int, _Lane] = {}
    ops, memory = [], []
    for rank in chosen:
        z = mesh.coordinate(rank).pp
        if z not in lanes:
            lanes[z] = _Lane(job, program, z, backend, kept)
        ops.append(lanes[z].ops_of(rank, mesh))
        memory.append(lanes[z].memory_of(rank))
    return Recording(pa.concat_tables(ops), pa.concat_tables(memory), METRICS_SCHEMA.empty_table())


class _Lane:
    """The rows of one pipeline rank, all but the rank's number and its peers."""

    def __init__(self, job: Job, program: Program, z: int, backend: str, kept: Path | None) -> None:
        known = waits(job, program, z)
        self.tie = token_lanes(job)
        self.script = _script(job, program.lanes[z], known, z, backend, kept)
        lengths = np.array([len(part.template) for part in self.script], np.int64)
        self.first = np.cumsum(lengths) - lengths  # row of each part's own piece
        self.size = int(lengths.sum())
        self.part = np.repeat(np.arange(len(self.script)), lengths)
        self.piece, self.pieces = self._numbered(lengths)
        self.columns = self._columns()
        self.memory = self._memory(job, lane_changes(job, program, z, known), z)

    def _numbered(self, lengths: Numbers) -> tuple[Numbers, list[Piece]]:
        """(index of each row's piece, the distinct pieces)."""
        index: dict[int, Numbers] = {}
        pieces: list[Piece] = []
        for part in self.script:
            if id(part.template) not in index:
                index[id(part.template)] = np.arange(len(part.template)) + len(pieces)
                pieces += part.template
        found = [index[id(part.template)] for part in self.script]
        return np.concatenate(found) if found else np.empty(0, np.int64), pieces

    def _columns(self) -> dict[str, pa.Array]:
        seq = np.arange(self.size)
        own = self.first[self.part] == seq
        actions = [part.action for part in self.script]
        place = {
            "microbatch": [-1 if a.microbatch is None else a.microbatch for a in actions],
            "stage": [-1 if a.stage is None else a.stage for a in actions],
        }
        waiting = np.array([part.awaits >= 0 for part in self.script], bool)[self.part]
        start = TICK * seq
        last = np.append(self.first[1:], self.size)[self.part] - 1
        columns = {
            "step": np.zeros(self.size, np.int64), "seq": seq, "parent": np.where(own, -1, self.first[self.part]),
            "cpu_ns": np.zeros(self.size, np.int64), "start_ns": start,
            "end_ns": np.where(own, TICK * last + TICK // 2 + 1, start + TICK // 2),
            "ref": self._refs(),
        }  # fmt: skip
        columns |= {key: np.where(waiting, -1, np.array(values)[self.part]) for key, values in place.items()}
        numbers = [f.name for f in fields(Piece) if f.type == "int"]
        for name in numbers:
            columns[name] = np.array([getattr(piece, name) for piece in self.pieces], np.int64)[self.piece]
        arrays = {name: whole(values) for name, values in columns.items()}
        return arrays | self._words(own, waiting)

    def _refs(self) -> Numbers:
        awaited = np.array([part.awaits for part in self.script], np.int64)
        return np.where(awaited >= 0, self.first[np.maximum(awaited, 0)], -1)[self.part]

    def _words(self, own: NDArray[np.bool_], waiting: NDArray[np.bool_]) -> dict[str, pa.Array]:
        """The text columns, each as a choice from a few words."""
        columns = {}
        for name in ("stream", "kind", "op", "group"):
            columns[name] = pa.array([getattr(piece, name) for piece in self.pieces]).take(whole(self.piece))
        units = pa.array([part.action.unit for part in self.script] + [""])
        columns["unit"] = units.take(whole(np.where(waiting, len(self.script), self.part)))
        labels = pa.array([part.label for part in self.script] + [piece.name for piece in self.pieces])
        columns["name"] = labels.take(whole(np.where(own, self.part, len(self.script) + self.piece)))
        return columns

    def ops_of(self, rank: int, mesh: Mesh) -> pa.Table:
        """The rows as `rank` writes them."""
        axes = {piece.axis for piece in self.pieces}
        of_axis = {axis: _peers(axis, rank, mesh, self.tie) for axis in axes}
        lists = pa.array([of_axis[piece.axis] for piece in self.pieces], pa.list_(pa.int32()))
        columns = self.columns | {
            "rank": whole(np.full(self.size, rank, np.int64)),
            "peers": lists.take(whole(self.piece)),
        }
        return pa.table([columns[name] for name in OPS_SCHEMA.names], schema=OPS_SCHEMA)

    def _memory(self, job: Job, changes: Iterable[Change], z: int) -> dict[str, pa.Array]:
        """Every change of the lane's memory, placed between the rows it comes between."""
        state = state_bytes(job, z)
        position, category, change, after = [-1] * len(state), [*state], [*state.values()], [False] * len(state)
        for i, name, nbytes, done in changes:
            position.append(i)
            category.append(name)
            change.append(nbytes)
            after.append(done)
        code = np.array([CATEGORIES.index(name) for name in category])
        held = np.zeros(len(code), np.int64)
        for which in range(len(CATEGORIES)):
            held[code == which] = np.cumsum(np.array(change, np.int64)[code == which])
        steps = np.minimum(np.array(position), 0)
        return {
            "step": whole(steps), "time_ns": whole(self._moments(np.array(position), np.array(after))),
            "category": pa.array(CATEGORIES).take(whole(code)), "bytes": whole(held),
        }  # fmt: skip

    def _moments(self, position: Numbers, after: NDArray[np.bool_]) -> Numbers:
        """The moment of a change: before the own row of the action at `position`, or after its last row."""
        own = np.array([i for i, part in enumerate(self.script) if part.awaits < 0] + [len(self.script)])
        edges = np.append(self.first, self.size)
        begin, end = edges[own], edges[np.minimum(own + 1, len(self.script))]
        at = np.minimum(position, len(own) - 1)
        moments = np.where(after, TICK * end[at], TICK * begin[at]) - TICK // 4
        moments[position < 0] = -TICK  # before the step
        place = np.arange(len(moments))
        apart = np.maximum.accumulate(moments - place) + place  # changes of one moment keep their order
        return np.where(position < 0, -TICK, apart)

    def memory_of(self, rank: int) -> pa.Table:
        columns = self.memory | {"rank": whole(np.full(len(self.memory["bytes"]), rank, np.int64))}
        return pa.table([columns[name] for name in MEMORY_SCHEMA.names], schema=MEMORY_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Part:
    """An action, or a wait for the one at `awaits` in the script (−1: no wait), and the rows it writes."""

    action: Action
    label: str
    template: Template
    awaits: int = -1


def _script(job: Job, lane: Sequence[Action], known: Waits, z: int, backend: str, kept: Path | None) -> list[_Part]:
    """What a lane does in order, its waits spelled out."""
    sizes = boundary_bytes(job)
    keys = [_template_key(sizes, a) for a in lane]
    templates = _templates(job, dict(zip(keys, lane, strict=True)), z, backend, kept)
    script: list[_Part] = []
    place: list[int] = []  # of each action in the script
    for i, awaited in enumerate(known.before):
        for j in awaited:
            script.append(_Part(lane[j], f"wait {script[place[j]].label}", WAIT, place[j]))
        if i < len(lane):
            place.append(len(script))
            script.append(_Part(lane[i], str(lane[i]), templates[keys[i]]))
    return script


def _template_key(sizes: Sequence[int], a: Action) -> tuple[object, ...]:
    """What decides an action's rows. Of a collective that is its bucket, of a message its size and its peer.

    sizes: of the messages across each boundary.
    """
    if a.kind.rows == "unit":
        return a.kind, kind_of(a.unit).name
    if a.kind.moves == "message":
        return a.kind, sizes[boundary(a)], a.peer
    return a.kind, a.unit, a.peer, a.axis, a.op


def _templates(
    job: Job, examples: dict[tuple[object, ...], Action], z: int, backend: str, kept: Path | None
) -> dict[tuple[object, ...], Template]:
    """The template for each key. examples: an action of each."""
    kinds, buckets = {a.kind for a in examples.values()}, {b.name: b for b in lane_buckets(job, z)}
    units: Templates = {}
    if Kind.BACKWARD in kinds or Kind.BACKWARD_INPUT not in kinds:
        units |= unit_templates(job, backend, kept)
    if Kind.BACKWARD_INPUT in kinds:  # besides the others, where an order written by hand mixes whole and split ones
        units |= unit_templates(job, backend, kept, split=True)
    alone = [a for a in examples.values() if a.kind.rows == "alone"]
    by_itself = alone_templates(job, z, alone, backend, kept) if alone else {}
    found: dict[tuple[object, ...], Template] = {}
    for key, a in examples.items():
        match a.kind.rows:
            case "unit":
                found[key] = units[a.kind.name, kind_of(a.unit).name]
            case "alone":
                found[key] = by_itself[a]
            case "sizes":
                found[key] = communication_template(job, a, buckets.get(a.unit), backend)
            case "":
                found[key] = ()
    return found


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
        return [pipeline[z] for z in tie]
    if not axis:
        return []
    if re.fullmatch(r"pp\d+", axis):
        return [rank, mesh.rank(**{**mesh.coordinate(rank), "pp": int(axis.removeprefix("pp"))})]
    raise Unknown("axis", axis, (*mesh.axes, "tie"))
