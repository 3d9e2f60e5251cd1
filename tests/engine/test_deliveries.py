"""A sender forgets a tensor when a later message proves that it arrived."""

from __future__ import annotations

import pytest

from engine.job.job import Job
from engine.program.compile import compile_job
from engine.program.kinds import Kind
from engine.program.send_completion import proofs


def outstanding(schedule: str, p: int, m: int, pp_rank: int) -> int:
    """Most sends of a pipeline rank that are not known to have arrived at any time, by replaying its actions."""
    program = compile_job(Job.from_options(pp=p, microbatches=m, batch=m, schedule=schedule, layers=p, overlap=False))
    known, flying, most, arrived = proofs(program, pp_rank), set(), 0, set()
    for a in program.lanes[pp_rank]:
        if a.kind.sends:
            flying.add((a.kind, a.stage, a.microbatch))
            most = max(most, len(flying))
        elif a.kind in (Kind.RECV_ACT, Kind.RECV_GRAD):
            assert a.stage is not None and a.microbatch is not None
            arrived.add((a.kind, a.stage, a.microbatch))
            flying -= set(known[a.kind, a.stage, a.microbatch])
    return most


@pytest.mark.parametrize("m", [8, 32])
def test_one_f_one_b_keeps_as_many_sends_as_the_pipeline_is_deep_whatever_the_micro_batches(m: int) -> None:
    # first rank: activations ahead of their gradients, p of them; last rank: a gradient is proved by the activation
    # that the rank before sends after using it
    assert outstanding("1f1b", 4, m, 0) == 4
    assert outstanding("1f1b", 4, m, 3) <= 3


def test_gpipes_last_rank_keeps_every_gradient_for_nothing_follows_it() -> None:
    assert outstanding("gpipe", 2, 8, 1) == 8


def test_every_proof_names_a_message_that_was_sent_before() -> None:
    program = compile_job(Job.from_options(pp=2, schedule="interleaved", chunks=2, layers=4))
    for pp_rank in (0, 1):
        sent = {(a.kind, a.stage, a.microbatch) for a in program.lanes[pp_rank] if a.kind.sends}
        proved = [send for sends in proofs(program, pp_rank).values() for send in sends]
        assert set(proved) <= sent and len(set(proved)) == len(proved)
