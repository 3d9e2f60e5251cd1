"""When does a sender know that its message has arrived, so that it may forget the tensor?

Nobody acknowledges messages. But whatever a neighbour sends after it has used a message proves that it had it. Each
message carries that proof for free; what no later message proves is kept until the end of the step.
"""

from __future__ import annotations

from engine.program.kinds import Kind
from engine.program.program import Action, Program

Key = tuple[Kind, int, int]  # kind of the send (of the receive), stage, micro-batch
Proofs = dict[Key, tuple[Key, ...]]


def key(action: Action) -> Key:
    """What tells a message, or the computation of a stage, from all others of its rank."""
    assert action.stage is not None and action.microbatch is not None, action
    return action.kind, action.stage, action.microbatch


def proofs(program: Program, pp_rank: int) -> Proofs:
    """For each receive of `pp_rank`: those of its sends that are known to have arrived once its message is in hand."""
    known: Proofs = {}
    for other in sorted({a.peer for a in program.lanes[pp_rank] if a.peer is not None}):
        known |= _proofs_of(program, pp_rank, other)
    return known


def _proofs_of(program: Program, pp_rank: int, other: int) -> Proofs:
    """The same for the messages that come from pipeline rank `other`."""
    waiting: dict[tuple[Kind, int, int], Key] = {}  # the computation that will use it → our send
    used: list[Key] = []
    known: Proofs = {}
    for a in program.lanes[other]:
        if a.kind.receives and a.peer == pp_rank:
            kind, stage, k = key(a)
            uses, sender = (Kind.FORWARD, stage - 1) if kind is Kind.RECV_ACT else (Kind.BACKWARD, stage + 1)
            waiting[uses, stage, k] = (kind.other_end, sender, k)
        elif a.kind is Kind.FORWARD or a.kind.makes_gradient:
            does = Kind.FORWARD if a.kind is Kind.FORWARD else Kind.BACKWARD
            sent = waiting.pop((does, *key(a)[1:]), None)
            used += [sent] if sent else []
        elif a.kind in (Kind.SEND_ACT, Kind.SEND_GRAD) and a.peer == pp_rank:
            kind, stage, k = key(a)
            ours = (Kind.RECV_ACT, stage + 1, k) if kind is Kind.SEND_ACT else (Kind.RECV_GRAD, stage - 1, k)
            known[ours], used = tuple(used), []
    return known
