"""What was sent: how often, how many bytes, between whom."""

from __future__ import annotations

from collections import Counter
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from engine.job.mesh import Mesh
from engine.prediction.replay.rows import StepRows
from engine.recording.tables import Recording
from lab.analysis.step.step_ops import step_ops
from lab.wording import axis_order


class Communication(TypedDict):
    axis: str
    op: str
    count: int
    logical_bytes: int
    wire_bytes: int


def communication(recording: Recording, mesh: Mesh, step: int) -> list[Communication]:
    """Bytes and counts of a step by axis and operation, on the lowest rank that uses the axis.

    A message is named after what that rank does with it: `send_act`, `recv_grad`… Rows come in the order
    dp, tp, pp, tie, world, then by operation. logical_bytes: what the algorithm moves per rank; wire_bytes:
    what the backend moves.
    """
    ops = step_ops(recording, step)
    rows: list[Communication] = []
    for axis in axis_order():
        on_axis = ops.axis == axis
        if not on_axis.any():
            continue
        mine = np.flatnonzero(on_axis & (ops.rank == ops.rank[on_axis].min()))
        named = _operation(ops)[mine]
        for op in sorted(set(named)):
            these = mine[named == op]
            logical, wire = int(ops.logical[these].sum()), int(ops.wire[these].sum())
            rows.append(Communication(axis=axis, op=op, count=len(these), logical_bytes=logical, wire_bytes=wire))
    return rows


def _operation(ops: StepRows) -> NDArray[np.object_]:
    return np.asarray(np.where(ops.is_message, ops.kind, ops.op), object)


def communication_matrix(recording: Recording, step: int, world_size: int | None = None) -> NDArray[np.int64]:
    """Logical bytes[from, to] of a step.

    Messages as sent; collectives as a ring, from each rank to the next of its group. The ring is the
    algorithm the logical bytes belong to; a backend may route them otherwise.
    """
    size = world_size or max(step_ops(recording, step).ranks) + 1
    matrix = np.zeros((size, size), np.int64)
    for (source, target), nbytes in bytes_between(recording, step).items():
        matrix[source, target] = nbytes
    return matrix


def bytes_between(recording: Recording, step: int) -> dict[tuple[int, int], int]:
    """(from, to) → logical bytes of a step, of the recorded ranks; see `communication_matrix`."""
    ops = step_ops(recording, step)
    found: Counter[tuple[int, int]] = Counter()
    received = ops.is_message & ~ops.is_send
    for row in np.flatnonzero(~ops.on_compute & ~received & (ops.logical > 0)).tolist():
        rank, peers = int(ops.rank[row]), ops.peers[row]
        next_in_ring = peers[(peers.index(rank) + 1) % len(peers)]
        found[rank, ops.other_end(row) if ops.is_send[row] else next_in_ring] += int(ops.logical[row])
    return dict(found)
