"""What one execution of an action writes into the recording, without its times: what rehearsed rows are made from.

Knows no torch: `engine.rehearse` finds the templates of computations by executing them, those of messages, gathers and
reductions follow from sizes.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.buckets import Bucket
from engine.formulas import message_bytes
from engine.job import Job
from engine.models.params import replicated_size
from engine.program import RECEIVES, SENDS, Action, Kind
from engine.traffic import logical_bytes, wire_bytes


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One row of the recording; the columns are those of `engine.recording.Op`. axis: whose ranks are its peers."""

    stream: str
    kind: str
    name: str = ""  # of a child; an action's own row is named after the action
    op: str = ""
    axis: str = ""
    group: str = ""
    flops: int = 0
    touched_bytes: int = 0
    matmuls: int = 0
    matmul_bytes: int = 0
    operators: int = 0
    batched_flops: int = 0
    batched_bytes: int = 0
    before_flops: int = 0
    logical_bytes: int = 0
    wire_bytes: int = 0


Template = tuple[Piece, ...]
"""An action's own row, then the collectives inside it in order; empty for an action that writes no row."""

WAIT: Template = (Piece(stream="compute", kind="wait"),)


def unit_kind(unit: str) -> str:
    """All blocks cost the same."""
    return "block" if unit.startswith("block") else unit


def communication_template(job: Job, action: Action, bucket: Bucket | None, backend: str) -> Template:
    """The row of a message, gather or reduction; none for a release or a wait. bucket: the one the action names."""
    if action.kind in SENDS or action.kind in RECEIVES:
        stream, size = ("pp_act" if action.kind in _ACTIVATIONS else "pp_grad"), message_bytes(job)
        return (
            Piece(
                stream=stream, kind=action.kind.value, op="message", axis=f"pp{action.peer}", group="pp",
                logical_bytes=size, wire_bytes=size,
            ),
        )  # fmt: skip
    if action.kind not in (Kind.GATHER, Kind.REDUCE):
        return ()
    assert bucket is not None
    op, axis = action.op, action.axis
    n = {"dp": job.plan.dp, "tp": job.plan.tp, "tie": 2}[axis]
    size = _bytes_moved(job, action, bucket)
    return (
        Piece(
            stream=axis, kind=action.kind.value, op=op, axis=axis, group=axis,
            logical_bytes=logical_bytes(op, n, size), wire_bytes=wire_bytes(op, n, size, backend),
        ),
    )  # fmt: skip


_ACTIVATIONS = (Kind.SEND_ACT, Kind.RECV_ACT)


def _bytes_moved(job: Job, action: Action, bucket: Bucket) -> int:
    """Size of the whole tensor that a collective works on."""
    if action.kind is Kind.GATHER:
        return bucket.padded * job.precision.compute
    if action.axis == "tp":
        elements = sum(replicated_size(job.model, job.plan.tp, unit) for unit in bucket.units)
    elif action.axis == "tie":
        elements = bucket.shard  # the whole bucket without ZeRO
    else:
        elements = bucket.padded
    return elements * job.precision.grad
