"""What one execution of an action writes into the recording, without its times: what rehearsed rows are made from.

Knows no torch: `engine.prediction.rehearsal.rehearse` finds the templates of computations by executing them, those of
messages, gathers and reductions follow from sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.communication.collective_bytes import logical_bytes, wire_bytes
from engine.job.job import Hardware, Job, Plan
from engine.model.buckets import Bucket, buckets_of_pp_rank
from engine.model.family import family_of
from engine.model.units import boundary_bytes, tied_pp_ranks
from engine.program.kinds import Kind
from engine.program.program import Action, boundary
from engine.program.streams import COMPUTE_STREAM
from engine.recording.tables import Op, OpCost


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One row of the recording: what `engine.recording.tables.Op` has, but for its place and times.

    axis: whose ranks are its peers.
    """

    stream: str
    kind: str
    name: str = ""  # of a child; an action's own row is named after the action
    op: str = ""
    axis: str = ""
    group: str = ""
    cost: OpCost = field(default_factory=OpCost)

    @property
    def row(self) -> Op:
        """A row with what the piece says; numbers, times and ranks are for whoever rehearses it."""
        return Op(
            seq=0, stream=self.stream, kind=self.kind, name=self.name, op=self.op, group=self.group, cost=self.cost
        )


SELF = "self"
"""As `Piece.axis`: the rank alone, as in a copy from one of its memories to another."""

Template = tuple[Piece, ...]
"""An action's own row, then the collectives inside it in order; empty for an action that writes no row."""

Templates = dict[tuple[str, str], Template]
"""(action kind, unit kind) → template."""

WAIT: Template = (Piece(stream=COMPUTE_STREAM, kind=Kind.WAIT.name),)


def unit_job(job: Job) -> Job:
    """The job of one micro-batch, one tensor group and as few units as have all kinds of those of `job`."""
    plan = Plan(
        tp=job.plan.tp, sequence_parallel=job.plan.sequence_parallel, recompute=job.plan.recompute,
        schedule="gpipe", microbatches=1,
    )  # fmt: skip
    training = replace(job.training, batch=job.microbatch_size, steps=1, seed=0, lr=1.0, text=None)
    return Job(model=family_of(job.model).smallest(job.model), plan=plan, training=training)


def step_job(job: Job, pp_rank: int) -> tuple[Job, int]:
    """(a job, the first of its pipeline ranks) whose optimizer step writes the same rows as that of `pp_rank` here."""
    alike = next(first for first in range(pp_rank + 1) if _step_of(job, first) == _step_of(job, pp_rank))
    plan = replace(job.plan, microbatches=1)
    training = replace(job.training, batch=job.microbatch_size * plan.replicas, steps=1, seed=0, lr=1.0, text=None)
    return replace(job, plan=plan, training=training, hardware=Hardware()), alike


def _step_of(job: Job, pp_rank: int) -> tuple[object, ...]:
    """What decides the rows of a pipeline rank's optimizer step."""
    copies = pp_rank in tied_pp_ranks(job)[1:]
    return copies, *((b.size, b.padded) for b in buckets_of_pp_rank(job, pp_rank))


def communication_template(job: Job, action: Action, bucket: Bucket | None, backend: str) -> Template:
    """The row of a message, gather or reduction. bucket: the one the action names."""
    if action.kind.moves == "message":
        size = boundary_bytes(job)[boundary(action)]
        return (
            Piece(
                stream=action.kind.stream, kind=action.kind.name, op="message", axis=f"pp{action.peer}", group="pp",
                cost=OpCost(logical_bytes=size, wire_bytes=size),
            ),
        )  # fmt: skip
    assert bucket is not None
    op, axis = action.op, action.axis
    n = 2 if axis == "tie" else job.plan.degree(axis)
    size = _bytes_moved(job, action, bucket)
    return (
        Piece(
            stream=axis, kind=action.kind.name, op=op, axis=axis, group=axis,
            cost=OpCost(logical_bytes=logical_bytes(op, n, size), wire_bytes=wire_bytes(op, n, size, backend)),
        ),
    )  # fmt: skip


def _bytes_moved(job: Job, action: Action, bucket: Bucket) -> int:
    """Size of the whole tensor that a collective works on."""
    if action.kind is Kind.GATHER:
        return bucket.padded * job.precision.compute
    return bucket.reduced(action.axis) * job.precision.grad
