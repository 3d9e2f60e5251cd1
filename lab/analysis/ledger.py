"""The ledger of one rank: what it sent on each axis by each operation, beside what the formulas say."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from engine.cluster.operations import COPY
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.prediction.formulas import predicted_communication
from engine.recording.tables import Recording
from lab.analysis.step.step_ops import step_ops
from lab.wording import axis_order


class LedgerRow(TypedDict):
    """Of one step. seconds: from start to end of each call, waiting for others included, added up."""

    axis: str
    op: str
    count: int
    logical_bytes: int
    wire_bytes: int
    predicted_bytes: int | None
    seconds: float


def ledger(recording: Recording, job: Job, step: int, rank: int = 0) -> list[LedgerRow]:
    """The rows of `rank`, or of the one that stands for it, in the order dp, tp, pp, tie, world."""
    ops = step_ops(recording, step)
    mine = np.flatnonzero(~ops.on_compute & (ops.rank == ops.recorded(rank)))
    named = np.where(ops.is_message, ops.kind, ops.op)
    predicted = predicted_communication(job, mesh_of(job).coordinate(rank).pp)
    rows: list[LedgerRow] = []
    for axis in axis_order():
        on_axis = mine[ops.axis[mine] == axis]
        for op in sorted(set(named[on_axis])):
            these = on_axis[named[on_axis] == op]
            rows.append(
                LedgerRow(
                    axis=axis,
                    op=str(op),
                    count=len(these),
                    logical_bytes=int(ops.logical[these].sum()),
                    wire_bytes=int(ops.wire[these].sum()),
                    predicted_bytes=0 if op == COPY else predicted.get((axis, str(op))),
                    seconds=float((ops.end[these] - ops.start[these]).sum() / 1e9),
                )
            )
    return rows
