"""How much communication hides behind computation."""

from __future__ import annotations

import numpy as np

from engine.prediction.replay.rows import Mask, Numbers, StepRows
from engine.recording.tables import Recording
from lab.analysis.step.intervals import Spans, both, length, spans, without
from lab.analysis.step.step_ops import step_ops
from lab.wording import axis_order


def overlap(recording: Recording, step: int) -> dict[str, float]:
    """Axis → fraction of its communication time hidden = time(communicating and computing) ÷
    time(communicating).

    Intervals are merged per rank and both times summed over ranks, as Holistic Trace Analysis does.
    Communicating: see `communicating`. Computing: forward, backward and step, less the collectives that
    block inside them and less waits. Axes that never communicate are left out.
    """
    ops = step_ops(recording, step)
    counted, start = communicating(ops)
    axes = axis_order()
    hidden, total = dict.fromkeys(axes, 0), dict.fromkeys(axes, 0)
    for rank, rows in ops.by_rank():
        computing = computing_spans(ops, rows)
        for axis in axes:
            mine = counted[rows] & (ops.axis[rows] == axis)
            talking = spans(start[rows][mine], ops.end[rows][mine])
            hidden[axis] += length(both(talking, computing)) * ops.weight[rank]
            total[axis] += length(talking) * ops.weight[rank]
    return {axis: hidden[axis] / total[axis] for axis in axes if total[axis]}


def communicating(ops: StepRows) -> tuple[Mask, Numbers]:
    """(rows that count as communication time, when each starts); they end where the row ends.

    A collective counts from its issue to its completion. A message counts at its receiver, from when it was
    both sent and asked for until it was there; a message found waiting counts until it was picked up, for
    nobody saw it arrive.
    """
    counted = ~ops.on_compute & ~ops.is_send
    start = ops.start.copy()
    received, sent = messages(ops)
    start[received] = np.minimum(np.maximum(start[received], ops.start[sent]), ops.end[received])
    return counted, start


def computing_spans(ops: StepRows, rows: slice) -> Spans:
    """When a rank really computes: its actions, less what blocks inside them."""
    return unblocked(ops, rows, ops.is_wait & ops.on_compute | blocking(ops))


def unblocked(ops: StepRows, rows: slice, blocks: Mask) -> Spans:
    """When a rank's compute stream works, less the rows of the step that `blocks` says."""
    work, blocked = ops.is_compute[rows], blocks[rows]
    start, end = ops.start[rows], ops.end[rows]
    return without(spans(start[work], end[work]), spans(start[blocked], end[blocked]))


def layer_ns(ops: StepRows, rows: slice) -> int:
    """ns that a rank spends in collectives inside its layers; those of the optimizer step are idle time."""
    inside = (blocking(ops) & ~ops.in_norm)[rows]
    return length(spans(ops.start[rows][inside], ops.end[rows][inside]))


def messages(ops: StepRows) -> tuple[Numbers, Numbers]:
    """(receives, the send of each), as numbers of rows."""
    count = len(ops.sent_by)
    return np.fromiter(ops.sent_by.keys(), np.int64, count), np.fromiter(ops.sent_by.values(), np.int64, count)


def blocking(ops: StepRows) -> Mask:
    """Communication inside a computation: the compute stream stands still meanwhile."""
    return ~ops.on_compute & (ops.parent >= 0)


def computing_ns(ops: StepRows, rows: slice) -> dict[str, int]:
    """ns that a rank really computes (see `computing_spans`), by kind of action."""
    computing = computing_spans(ops, rows)
    kind, work = ops.kind[rows], ops.is_compute[rows]
    start, end = ops.start[rows], ops.end[rows]
    return {
        str(name): length(both(computing, spans(start[mine], end[mine])))
        for name in sorted(set(kind[work]))
        for mine in [work & (kind == name)]
    }


def core_waits_ns(ops: StepRows, rows: slice) -> dict[str, int]:
    """ns in which a rank seems to compute but its main thread has no core: time(computing) − its processor time.

    By kind of action; 0 where processor time was not recorded.
    """
    used, kind = ops.cpu[rows], ops.kind[rows]
    known = bool((used > 0).any())
    return {
        name: max(0, computing - int(used[kind == name].sum())) if known else 0
        for name, computing in computing_ns(ops, rows).items()
    }


def core_wait_ns(ops: StepRows, rows: slice) -> int:
    """The same, of all kinds together."""
    return sum(core_waits_ns(ops, rows).values())


def core_wait(recording: Recording, step: int) -> float | None:
    """Share of all ranks' computing time that was waiting for a core; None if processor time was not recorded."""
    ops = step_ops(recording, step)
    if not (ops.cpu > 0).any():
        return None
    computing = sum(length(computing_spans(ops, rows)) for _, rows in ops.by_rank())
    return sum(core_wait_ns(ops, rows) for _, rows in ops.by_rank()) / computing if computing else None
