"""A run as Holistic Trace Analysis reads it: a folder with a trace like PyTorch's (JSON) for each recorded rank.

HTA knows streams of GPU kernels. So a computation is given as a kernel of stream 1, in pieces where a collective blocks
inside it; communication as a kernel named "ncclDevKernel_…", whatever the backend, for HTA tells communication by its
name. A collective counts from its issue to its completion, a message at its receiver from when it was sent and asked
for until it was there, as in `lab.analysis.step.overlap`. Hence, per rank:

- HTA's compute time = time(computing) as the lab defines it, its communication = time(communicating) on any axis;
- its overlap = time(both) ÷ time(communicating);
- its idle time = time from the first kernel to the last − time(computing or communicating). The lab's bubble is
  another number: a rank that waits while its messages are under way is idle there and busy in HTA.

Times are the nearest whole microseconds, to which HTA would round in ways of its own; what becomes empty is left out.
Nothing launches these kernels, so that what HTA says of launches, queues and critical paths is not to be had.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import IO, Any

import numpy as np

from engine.cluster.operations import OPERATIONS
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.steps import recorded_steps
from lab.analysis.recorded_run import RecordedRun
from lab.analysis.step.overlap import blocking, communicating
from lab.analysis.step.step_ops import step_ops
from lab.views.exports.parts import Part
from lab.views.exports.tracks import Track, Tracks, in_order_of_start

Event = dict[str, Any]

_HOST_THREAD = 0


def parts(run: RecordedRun, step: int | None) -> list[Part]:
    """A file for each recorded rank. All steps are read here, once; a file is made when it is written."""
    steps = recorded_steps(run.recording) if step is None else [step]
    origin = int(step_ops(run.recording, steps[0]).start.min())
    events: dict[int, list[Event]] = {}
    tracks, streams = Tracks(), _Streams()
    for number in steps:
        for rank, event in _events(step_ops(run.recording, number), number, origin, tracks, streams):
            events.setdefault(rank, []).append(event)
    return [Part(f"rank{rank:03d}.json", partial(_write, run, rank, events[rank])) for rank in sorted(events)]


def _write(run: RecordedRun, rank: int, events: list[Event], file: IO[bytes]) -> None:
    """HTA looks for the rank as text, with a space before the number, and takes the first that it finds."""
    head = {"rank": rank, "world_size": run.job.world_size, "backend": run.summary.get("backend", "")}
    about = {"schemaVersion": 1, "distributedInfo": head, "displayTimeUnit": "ms", "traceName": run.id}
    file.write(json.dumps(about)[:-1].encode() + b',\n"traceEvents": [\n')
    file.write(b",\n".join(json.dumps(event, ensure_ascii=False).encode() for event in events))
    file.write(b"\n]}\n")


class _Streams:
    """The number of each track as a stream of its rank, from 1 on."""

    def __init__(self) -> None:
        self.of: dict[int, dict[Track, int]] = {}

    def number(self, track: Track) -> int:
        mine = self.of.setdefault(track.rank, {Track(track.rank, "compute", 0): 1})
        return mine.setdefault(track, len(mine) + 1)


def _events(ops: StepRows, number: int, origin: int, tracks: Tracks, streams: _Streams) -> Iterator[tuple[int, Event]]:
    """(rank, event) of a step: its mark, then its kernels."""
    counted, start = communicating(ops)
    pieces = _pieces(ops)
    for rank, rows in ops.by_rank():
        mark = {"ph": "X", "cat": "user_annotation", "name": f"step {number}", "pid": rank, "tid": _HOST_THREAD}
        yield rank, mark | _time(int(ops.start[rows].min()), int(ops.end[rows].max()), origin)
    for row in in_order_of_start(ops, start):
        rank = int(ops.rank[row])
        found = pieces.get(row, []) if not counted[row] else [(int(start[row]), int(ops.end[row]))]
        for begin, end in found:
            time = _time(begin, end, origin)
            if time["dur"]:
                stream = streams.number(tracks.place(rank, str(ops.stream[row]), begin, end))
                kernel = {"ph": "X", "cat": "kernel", "pid": rank, "tid": stream}
                yield rank, kernel | time | _what(ops, row, stream, bool(counted[row]))


def _time(start: int, end: int, origin: int) -> Event:
    """Edges are rounded, not lengths, so that what touched still touches."""
    begin, stop = ((time - origin + 500) // 1000 for time in (start, end))
    return {"ts": begin, "dur": stop - begin}


def _what(ops: StepRows, row: int, stream: int, communicates: bool) -> Event:
    args: Event = {"stream": stream}
    if not communicates:
        args |= {"microbatch": int(ops.microbatch[row])}
        return {"name": f"{ops.kind[row]} {ops.unit[row]}".rstrip(), "args": args}
    axis, name = str(ops.axis[row]), OPERATIONS[str(ops.op[row])].kernel
    args |= {
        "Collective name": str(ops.op[row]), "Group size": len(ops.peers[row]), "Process Group Name": axis,
        "Process Group Ranks": str(ops.peers[row]),
    }  # fmt: skip
    return {"name": f"ncclDevKernel_{name} {axis}", "args": args}


def _pieces(ops: StepRows) -> dict[int, list[tuple[int, int]]]:
    """Of each computation when it really computes: less what blocks inside it. See `computing_spans`."""
    inside: dict[int, list[tuple[int, int]]] = {}
    blocks = np.flatnonzero(blocking(ops))
    for child, parent in zip(blocks.tolist(), ops.parent[blocks].tolist(), strict=True):
        inside.setdefault(parent, []).append((int(ops.start[child]), int(ops.end[child])))
    computing = np.flatnonzero(ops.is_compute).tolist()
    return {row: list(_between(int(ops.start[row]), int(ops.end[row]), inside.get(row, []))) for row in computing}


def _between(start: int, end: int, holes: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What is left of a span without the holes in it."""
    for first, last in sorted(holes):
        if first > start:
            yield start, first
        start = max(start, last)
    if start < end:
        yield start, end
