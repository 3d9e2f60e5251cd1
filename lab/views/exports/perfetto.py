"""A run as one file for ui.perfetto.dev and chrome://tracing, in Chrome's Trace Event Format (JSON).

A process for each recorded rank; in it a thread for each stream (see `lab.views.exports.tracks`), a counter for each
category of memory, and an arrow for each message. Times are microseconds since the first operation, exact to the
nanosecond. What the viewers' importers need, and the format does not say: metadata have no time; thread ids are unique
across processes (Perfetto names threads by them alone); ids of arrows are small integers; an arrow leaves from the END
of its slice, so that the moment of sending is an empty slice of its own, "sent".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any

import numpy as np

from engine.job.mesh import Mesh, mesh_of
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.steps import recorded_steps
from engine.program.kinds import kind_of_row
from engine.recording.tables import CATEGORIES, Recording
from lab.analysis.memory import memory_over_time
from lab.analysis.recorded_run import RecordedRun
from lab.analysis.step.overlap import communicating
from lab.analysis.step.step_ops import step_ops
from lab.views.exports.parts import Part
from lab.views.exports.tracks import Track, Tracks, in_order_of_start

Event = dict[str, Any]

_AMOUNTS = ("flops", "touched_bytes", "logical_bytes", "wire_bytes")
_PLACES = ("microbatch", "stage")


def parts(run: RecordedRun, step: int | None) -> list[Part]:
    """The one file of a run, or of one of its steps."""
    return [Part(f"{run.id}.perfetto.json", partial(_write, run, step))]


def _write(run: RecordedRun, step: int | None, file: IO[bytes]) -> None:
    """An event a line."""
    about = {"run": run.id, "status": run.status, "job": run.job.to_toml()}
    file.write(b'{"displayTimeUnit": "ms",\n"traceEvents": [\n')
    for number, event in enumerate(trace_events(run, step)):
        file.write((",\n" if number else "").encode() + json.dumps(event, ensure_ascii=False).encode())
    file.write(f'\n],\n"otherData": {json.dumps(about, ensure_ascii=False)}}}\n'.encode())


def trace_events(run: RecordedRun, step: int | None = None) -> Iterator[Event]:
    """Every event of the file: names, slices and arrows step by step, counters."""
    recording, mesh = run.recording, mesh_of(run.job)
    steps = recorded_steps(recording) if step is None else [step]
    trace = _Trace(mesh, origin=int(step_ops(recording, steps[0]).start.min()))
    ranks: set[int] = set()
    for number in steps:
        ops = step_ops(recording, number)
        yield from _names(trace, ops, ranks)
        yield from trace.step(ops, number)
        end = int(ops.end.max())
    for rank in sorted(ranks):
        yield from _memory(trace, recording, rank, math.inf if step is None else end)


def microseconds(ns: int) -> float:
    """ns ÷ 1000 as the nearest number from which readers that cut off after × 1000, as Perfetto's does, get ns back."""
    time = ns / 1000
    return time if int(time * 1000) == ns else math.nextafter(time, math.inf)


@dataclass
class _Trace:
    """What has been given out: ids of threads and arrows."""

    mesh: Mesh
    origin: int
    tracks: Tracks = field(default_factory=Tracks)
    threads: dict[Track, int] = field(default_factory=dict)
    arrows: int = 0

    def step(self, ops: StepRows, number: int) -> Iterator[Event]:
        """Slices of all ranks, then the arrows between them: an arrow joins what is open at its ends."""
        _, start = communicating(ops)
        placed: dict[int, Track] = {}
        for rank, rows in ops.by_rank():
            first, last = int(ops.start[rows].min()), int(ops.end[rows].max())
            yield from self._slice(self.tracks.place(rank, "steps", first, last), f"step {number}", first, last)
        details = _details(ops)
        for row in in_order_of_start(ops, start):
            begin, end = int(start[row]), int(ops.end[row])
            placed[row] = track = self.tracks.place(int(ops.rank[row]), str(ops.stream[row]), begin, end)
            yield from self._slice(track, str(ops.name[row]), begin, end, str(ops.kind[row]), details(row))
            if (kind := kind_of_row(str(ops.kind[row]))) is not None and kind.sends:
                yield from self._slice(track, "sent", begin, begin)
        for received, sent in ops.sent_by.items():
            if start[received] >= start[sent]:  # else the clocks of two machines disagree
                ends = (placed[sent], int(start[sent])), (placed[received], int(start[received]))
                yield from self._arrow(*ends, name=str(ops.name[sent]))

    def _slice(
        self, track: Track, name: str, start: int, end: int, category: str = "mark", args: Event | None = None
    ) -> Iterator[Event]:
        if track not in self.threads:
            self.threads[track] = self.mesh.size + 1 + len(self.threads)
            yield self._at(track) | {"ph": "M", "name": "thread_name", "args": {"name": track.name}}
            yield self._at(track) | {"ph": "M", "name": "thread_sort_index", "args": {"sort_index": track.order}}
        found = self._at(track, start) | {"ph": "X", "name": name, "cat": category, "dur": microseconds(end - start)}
        yield found | {"args": args} if args else found

    def _arrow(self, source: tuple[Track, int], to: tuple[Track, int], name: str) -> Iterator[Event]:
        self.arrows += 1
        both = {"name": name, "cat": "message", "id": self.arrows}
        yield self._at(*source) | {"ph": "s", **both}
        yield self._at(*to) | {"ph": "f", "bp": "e", **both}

    def _at(self, track: Track, time: int | None = None) -> Event:
        where = {"pid": process(track.rank), "tid": self.threads[track]}
        return where if time is None else where | {"ts": microseconds(time - self.origin)}


def process(rank: int) -> int:
    """Process 0 is the idle one of the system to Perfetto."""
    return rank + 1


def _names(trace: _Trace, ops: StepRows, known: set[int]) -> Iterator[Event]:
    """Names the ranks that are new, which come in pipeline order."""
    for rank in ops.ranks:
        if rank in known:
            continue
        known.add(rank)
        at, alike = trace.mesh.coordinate(rank), ops.weight.get(rank, 1)
        name = f"rank {rank} ({at})" + (f" and {alike - 1:,} like it" if alike > 1 else "")
        place = 0
        for axis in ("pp", *(axis for axis in at if axis != "pp")):  # as `Coordinate.by_stage` orders them
            place = place * trace.mesh.degree(axis) + at[axis]
        yield {"ph": "M", "name": "process_name", "pid": process(rank), "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process(rank), "args": {"sort_index": place}}


def _details(ops: StepRows) -> Callable[[int], Event]:
    """row → what a click on its slice shows: of the columns those that apply to it."""
    amounts = {name: ops.table[name].to_pylist() for name in _AMOUNTS}
    places = {name: ops.table[name].to_pylist() for name in _PLACES}
    words = {"unit": ops.unit, "axis": ops.axis}
    inside = ops.parent

    def details(row: int) -> Event:
        found: Event = {name: str(column[row]) for name, column in words.items() if column[row]}
        found |= {name: column[row] for name, column in places.items() if column[row] >= 0}
        found |= {name: column[row] for name, column in amounts.items() if column[row]}
        if ops.cpu[row]:
            found["cpu_us"] = microseconds(int(ops.cpu[row]))
        if inside[row] >= 0:
            found["inside"] = str(ops.name[inside[row]])
        if peers := ops.peers[row]:
            found["ranks"] = ", ".join(map(str, peers[:8])) + (", …" if len(peers) > 8 else "")
        return found

    return details


def _memory(trace: _Trace, recording: Recording, rank: int, end: float) -> Iterator[Event]:
    """Bytes held from each change on; what is held when the first step begins, and not what came before."""
    times, held = memory_over_time(recording, rank)
    first = max(int(np.searchsorted(times, trace.origin, side="right")) - 1, 0)
    for i in range(first, len(times)):
        if times[i] <= end:
            time = microseconds(max(int(times[i]) - trace.origin, 0))
            args = dict(zip(CATEGORIES, held[:, i].tolist(), strict=True))
            yield {"ph": "C", "name": "memory", "pid": process(rank), "ts": time, "args": args}
