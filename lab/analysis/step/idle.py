"""Who stood idle, for how long, and what for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow.compute as pc

from engine.job.axes import AXES
from engine.job.job import Job
from engine.prediction import formulas
from engine.prediction.replay.rows import Mask, Numbers, StepRows
from engine.recording.tables import Recording
from lab.analysis.step.intervals import Spans, spans, without
from lab.analysis.step.overlap import unblocked
from lab.analysis.step.step_ops import all_ranks_ns, step_ops, window_of
from lab.wording import axis_name

CAUSES = ("dependency", "transfer", "straggler", "done", "host")
"""What an idle rank waits for.

dependency: a message whose sender has not sent it yet. transfer: a message under way, a collective in
which every member takes part already, or the communication before on the same stream. straggler: a
collective that some member has not joined yet. done: nothing, this rank has finished the step before the
others. host: nothing, it is between two operations (Python, the recorder, the scheduler).
"""


@dataclass(frozen=True)
class Idle:
    """A stretch of idle time on one rank's compute stream.

    why: in words, what it waits for. of: the same without ranks and units, as in "all-gather over the data axis"; ""
    where nothing is awaited.
    """

    rank: int
    start_ns: int
    end_ns: int
    cause: str
    why: str
    of: str = ""


def busy(ops: StepRows, rows: slice) -> Spans:
    """When a rank's compute stream works: forward, backward and step, less the time blocked in waits."""
    return unblocked(ops, rows, standing(ops))


def standing(ops: StepRows) -> Mask:
    """Rows in which a rank only waits: its waits, and communication inside the optimizer step."""
    return ops.is_wait & ops.on_compute | ops.in_norm


def bubble(recording: Recording, job: Job, step: int) -> float:
    """Bubble fraction of a step: idle ÷ total, on the compute streams of all ranks.

    Total runs from the first start to the last end. Forward, backward and step are busy, collectives inside
    a layer included. Waits and gaps are idle, and so is the communication inside the optimizer step, where
    ranks meet to add up the gradient norm.
    """
    ops = step_ops(recording, step)
    start, end = window_of(ops)
    total = (end - start) * job.world_size
    working = without(_side_by_side(ops, ops.is_compute), _side_by_side(ops, standing(ops)))
    weight = np.array([ops.weight[rank] for rank in ops.ranks], np.int64)
    works = int(((working[:, 1] - working[:, 0]) * weight[working[:, 0] // _room(ops)[1]]).sum())
    return 1 - works / total if total else 0.0


def bubble_formula(job: Job) -> float | None:
    """What the schedule's formula says for equal stages and free communication; idle ÷ total. None: none is known."""
    known = formulas.bubble_formula(job)
    return None if known is None else float(known)


def idle_by_cause(recording: Recording, step: int) -> dict[int, dict[str, float]]:
    """Seconds each rank stood idle in a step, by cause (see `CAUSES`). Their sum is the idle time of
    `bubble`.
    """
    ops = step_ops(recording, step)
    seconds = {rank: dict.fromkeys(CAUSES, 0.0) for rank in ops.ranks}
    for idle in idle_spans(ops):
        seconds[idle.rank][idle.cause] += (idle.end_ns - idle.start_ns) / 1e9
    return seconds


def idle_by_awaited(recording: Recording, step: int) -> dict[tuple[str, str], float]:
    """Share of all ranks' time in a step by (cause of idling, what is awaited, see `Idle.of`)."""
    ops = step_ops(recording, step)
    whole = all_ranks_ns(ops) or 1
    found: dict[tuple[str, str], float] = defaultdict(float)
    for idle in idle_spans(ops):
        found[idle.cause, idle.of] += (idle.end_ns - idle.start_ns) * ops.weight[idle.rank] / whole
    return dict(found)


def idle_spans(ops: StepRows) -> Sequence[Idle]:
    """Every stretch of idle time of a step, rank by rank in the order of time; none overlap.

    Found once for these rows: tables, sentences and timelines all ask.
    """
    if ops not in _found:
        _found[ops] = tuple(_idle_spans(ops))
    return _found[ops]


_found: WeakKeyDictionary[StepRows, Sequence[Idle]] = WeakKeyDictionary()


def _idle_spans(ops: StepRows) -> list[Idle]:
    why, stands, gaps = _Reasons(ops), standing(ops) & (ops.end > ops.start), _gaps(ops)
    found: list[Idle] = []
    for rank, rows in ops.by_rank():
        blocked = np.flatnonzero(stands[rows]) + rows.start
        waits = [idle for row in blocked.tolist() for idle in why.of_wait(row)]
        found += sorted([*waits, *gaps[rank]], key=lambda idle: idle.start_ns)
    return found


def _gaps(ops: StepRows) -> dict[int, list[Idle]]:
    """Rank → time of the step's window in which its compute stream has no row at all."""
    (first, room), (start, end) = _room(ops), window_of(ops)
    windows = np.arange(len(ops.ranks), dtype=np.int64)[:, None] * room + (np.array([start, end]) - first)
    gaps = without(windows, _side_by_side(ops, ops.on_compute))
    found: dict[int, list[Idle]] = {rank: [] for rank in ops.ranks}
    for place, (a, b) in zip((gaps[:, 0] // room).tolist(), (gaps % room + first).tolist(), strict=True):
        done = b == end
        rank = ops.ranks[place]
        found[rank].append(Idle(rank, a, b, "done" if done else "host", _NO_WORK if done else _HOST))
    return found


def _room(ops: StepRows) -> tuple[int, int]:
    """(first ns of any row, ns from one rank to the next where ranks lie side by side)."""
    first = int(ops.start.min())
    return first, int(ops.end.max()) - first + 1


def _side_by_side(ops: StepRows, rows: Mask) -> Spans:
    """Merged spans of rows, rank after rank on one line, so that one sweep does for all of them."""
    first, room = _room(ops)
    at = np.searchsorted(np.array(ops.ranks, np.int64), ops.rank[rows]) * room - first
    return spans(ops.start[rows] + at, ops.end[rows] + at)


_NO_WORK = "nothing left to do, other ranks are still in this step"
_HOST = "between two operations: Python, or waiting for a processor core"


def _codes(ops: StepRows, name: str) -> Numbers:
    """A number for each word of a column, the same for the same word."""
    return np.asarray(pc.dictionary_encode(ops.table[name].combine_chunks()).indices.to_numpy(), np.int64)


class _Reasons:
    """Finds what a wait waited for, by following its reference to the operation and that to the other
    ranks.
    """

    def __init__(self, ops: StepRows) -> None:
        self.ops = ops
        self.awaited = np.where(ops.in_norm, np.arange(len(ops.rank)), ops.ref)
        self.members = self._members()
        self.computations = {rank: self._computations(rows) for rank, rows in ops.by_rank()}

    def _computations(self, rows: slice) -> Numbers:
        """A rank's computations by their end."""
        found = np.flatnonzero(self.ops.is_compute[rows]) + rows.start
        order = np.argsort(self.ops.end[found], kind="stable")
        return np.asarray(found[order], np.int64)

    def _members(self) -> dict[int, list[int]]:
        """Row of an awaited collective → the rows of all members, matched by their order within the group."""
        o = self.ops
        awaited = np.unique(self.awaited[self.awaited >= 0])
        wanted = {(o.stream[i], o.kind[i]) for i in awaited if o.op[i] != "message"}
        count: dict[tuple[object, ...], int] = defaultdict(int)
        members: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for stream, kind in wanted:
            for i in np.flatnonzero((o.stream == stream) & (o.kind == kind)):
                group = (stream, kind, o.op[i], tuple(sorted({o.recorded(peer) for peer in o.peers[i]})))
                count[(o.rank[i], *group)] += 1
                members[(count[(o.rank[i], *group)], *group)].append(int(i))
        return {row: rows for rows in members.values() for row in rows}

    def of_wait(self, wait: int) -> Iterator[Idle]:
        """A wait in stretches: until the other side was ready, and from then on."""
        o, row = self.ops, int(self.awaited[wait])
        rank, start, end = int(o.rank[wait]), int(o.start[wait]), int(o.end[wait])
        if row < 0:
            yield Idle(rank, start, end, "transfer", f"in {o.name[wait] or 'communication'}")
            return
        yield from self._stretches(rank, row, start, end)

    def _stretches(self, rank: int, row: int, start: int, end: int) -> Iterator[Idle]:
        """What `rank` waits for from `start` to `end`, when communication `row` of any rank is over."""
        cause, last, before, after = self._message(row) if self.ops.op[row] == "message" else self._collective(row)
        edge = min(max(int(self.ops.start[last]) if last >= 0 else end, start), end)
        if edge > start:
            behind = self.queued.get(last)
            if behind is None:
                yield Idle(rank, start, edge, cause, before, self._of(row))
            else:
                yield from self._stretches(rank, self.received_as.get(behind, behind), start, edge)
        if end > edge:
            yield Idle(rank, edge, end, "transfer", after, self._of(row))

    @cached_property
    def received_as(self) -> dict[int, int]:
        """Row of each send → row of its receive."""
        return {sent: received for received, sent in self.ops.sent_by.items()}

    @cached_property
    def queued(self) -> dict[int, int]:
        """Communication that began the very moment the one before on its stream was over → that one.

        In a replay this is a stream that was still busy; on a measured clock no two of these times are equal.
        """
        o = self.ops
        rows = np.flatnonzero(~o.on_compute)
        message = o.among("op", "message")[rows]
        other = np.full(len(rows), -1, np.int64)
        other[message] = [o.other_end(row) for row in rows[message].tolist()]
        streams = np.where(message, _codes(o, "kind")[rows], -1 - _codes(o, "stream")[rows])
        order = np.lexsort((other, streams, o.rank[rows]))  # within a stream, rows stay in order
        now, before = order[1:], order[:-1]
        same = (streams[now] == streams[before]) & (other[now] == other[before])
        now, before = rows[now], rows[before]
        same &= (o.rank[now] == o.rank[before]) & (o.end[before] == o.start[now]) & (o.start[now] > o.start[before])
        return dict(zip(now[same].tolist(), before[same].tolist(), strict=True))

    def _message(self, row: int) -> tuple[str, int, str, str]:
        """(cause, the row that had to begin, words for the time before, words for the time after)."""
        o, peer = self.ops, self.ops.other_end(row)
        kind = str(o.kind[row])
        label = f"{'activations' if kind.endswith('act') else 'gradients'} of micro-batch {o.microbatch[row]}"
        if kind.startswith("send"):
            return "transfer", row, "", f"until rank {peer} has received the {label}"
        after = f"the {label} are on their way from rank {peer}"
        if row not in o.sent_by:
            return "dependency", -1, f"for rank {peer} to send the {label}", after
        sent = o.sent_by[row]
        maker = self._last_computation(o.recorded(peer), int(o.start[sent]))
        return "dependency", sent, f"for {maker} on rank {peer}, which makes the {label}", after

    def _last_computation(self, rank: int, time: int) -> str:
        """The computation a rank ended last before `time`: what it had to do before it could send."""
        rows = self.computations[rank]
        at = int(np.searchsorted(self.ops.end[rows], time, side="right")) - 1
        return str(self.ops.name[rows[at]]) if at >= 0 else "the beginning of the step"

    def _collective(self, row: int) -> tuple[str, int, str, str]:
        """(cause, the last member to join, words for the time before, words for the time after)."""
        o = self.ops
        last = max(self.members.get(row, [row]), key=lambda i: int(o.start[i]))
        what = f"{o.op[row]} {self._over(row)}" + (f" of {o.unit[row]}" if o.unit[row] else "")
        late = next((peer for peer in o.peers[row] if o.recorded(peer) == o.rank[last]), o.rank[last])
        return "straggler", last, f"for rank {late} to join the {what}", f"the {what} is under way"

    def _over(self, row: int) -> str:
        axis = str(self.ops.axis[row])
        where = axis_name(axis)
        return f"over {f'the {where} axis' if axis in AXES else where}"

    def _of(self, row: int) -> str:
        o = self.ops
        if o.op[row] == "message":
            return "messages of activations" if str(o.kind[row]).endswith("act") else "messages of gradients"
        return f"{str(o.op[row]).replace('_', '-')} {self._over(row)}"
