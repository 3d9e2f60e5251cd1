"""Every program that would not train its job is refused in words; a different one that would is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.execution.runtime import HANDLERS
from engine.job.errors import Unknown
from engine.job.job import Job
from engine.program.checks.check import check_program
from engine.program.compile import compile_job
from engine.program.kinds import KINDS, Kind
from engine.program.program import Action, Program
from tests.engine.rewriting import (
    DATA,
    ONE,
    PIPE,
    TIED,
    Lane,
    Rewrite,
    gathered_all_step,
    moved,
    other_way_round,
    reads,
    receives_first,
    reductions_first,
    reductions_last,
    replaced,
    rewritten,
    same,
    waiting,
    without,
)
from tests.engine.running import train
from tests.engine.test_program import refusal

MESSAGES = [kind for kind in KINDS if kind.moves == "message"]
WRONG: dict[str, tuple[Job, tuple[Rewrite, ...], str]] = {
    "zero 1 without its gathers": (
        DATA[1], (without(Kind.GATHER),), "each rank has updated its shard only: gather head all_gather @dp is missing",
    ),
    "zero 2 without its gathers": (DATA[2], (without(Kind.GATHER),), "gather head all_gather @dp is missing"),
    "zero 1 gathering before the update": (
        DATA[1], (lambda lane: [*(a for a in lane if a.kind is Kind.GATHER), *without(Kind.GATHER)(lane)],),
        "under ZeRO-1 parameters change in their update and are gathered after it",
    ),
    "zero 1 gathering twice": (
        DATA[1], (lambda lane: [*lane, *(a for a in lane if a.kind is Kind.GATHER)],), "has been gathered already",
    ),
    "a gather with nothing sharded": (
        DATA[0], (lambda lane: [reads("gather head all_gather @dp"), *lane],), "nothing is sharded here",
    ),
    "reductions before any backward, zero 0": (
        DATA[0], (reductions_first,), "it needs backward head mb1 stage0 first (ready at t=8)",
    ),
    "reductions before any backward, zero 3": (
        DATA[3], (reductions_first,), "these gradients are not complete: it needs backward head mb0 stage0 first",
    ),
    "a reduction that gathers": (
        DATA[3], (replaced("reduce head mb0 reduce_scatter @dp", "reduce head mb0 all_gather @dp"),),
        "no such sum is needed; for head it is: reduce head mb0 reduce_scatter @dp",
    ),
    "a reduction with the wrong op": (
        DATA[2], (replaced("reduce head mb0 reduce_scatter @dp", "reduce head mb0 all_reduce @dp"),),
        "for head it is: reduce head mb0 reduce_scatter @dp",
    ),
    "a reduction over no axis": (
        DATA[2], (replaced("reduce head mb0 reduce_scatter @dp", "reduce head mb0 reduce_scatter"),),
        "it must name the axis of a reduction",
    ),
    "all messages removed": (
        PIPE, (without(*MESSAGES),) * 2,
        "on pipeline 0 (ready at t=2): it needs send_act mb0 stage0 and recv_act mb0 stage1",
    ),
    "a receive after its forward": (
        PIPE, (same, moved("recv_act mb0 stage1 <-pp0", after="forward block2 mb0 stage1")),
        "it needs recv_act mb0 stage1 first (ready at t=2)",
    ),
    "a receive after its backward": (
        PIPE, (moved("recv_grad mb0 stage0 <-pp1", after="backward block1 mb0 stage0"),),
        "it needs recv_grad mb0 stage0 first",
    ),
    "a send before its forward": (
        PIPE, (moved("send_act mb0 stage0 ->pp1", before="forward block0 mb0 stage0"),),
        "it needs forward block1 mb0 first (ready at t=2)",
    ),
    "a message sent twice": (
        PIPE, (replaced("send_act mb0 stage0 ->pp1", *["send_act mb0 stage0 ->pp1"] * 2),), "has been sent already",
    ),
    "a message received twice": (
        PIPE, (same, replaced("recv_act mb0 stage1 <-pp0", *["recv_act mb0 stage1 <-pp0"] * 2)),
        "has been received already",
    ),
    "a send without a peer": (
        PIPE, (replaced("send_act mb0 stage0 ->pp1", "send_act mb0 stage0"),),
        "stage1 lives on pipeline 1: write ->pp1",
    ),
    "a send to itself": (
        PIPE, (replaced("send_act mb0 stage0 ->pp1", "send_act mb0 stage0 ->pp0"),), "write ->pp1",
    ),
    "a receive without a stage": (
        PIPE, (same, replaced("recv_act mb0 stage1 <-pp0", "recv_act mb0 <-pp0")), "write stage0 to stage1",
    ),
    "a send below the first stage": (
        PIPE, (lambda lane: [*lane, reads("send_grad mb0 stage0 ->pp1")],), "stage0 has no neighbour on that side",
    ),
    "a send after the norm": (
        PIPE, (same, moved("send_grad mb2 stage1 ->pp0", after="norm")), "the norm comes before it",
    ),
    "receives in another order than their sends": (
        PIPE, (same, lambda lane: [*sorted((a for a in lane if a.kind.receives), key=lambda a: -(a.microbatch or 0)),
                                   *without(Kind.RECV_ACT, Kind.RECV_GRAD)(lane)]),
        "post receives in the order of their sends",
    ),
    "a forward of another stage": (
        ONE, (replaced("forward block0 mb0 stage0", "forward block0 mb0 stage7"),), "block0 belongs to stage0",
    ),
    "a forward without a stage": (
        ONE, (replaced("forward block0 mb0 stage0", "forward block0 mb0"),), "block0 belongs to stage0: write stage0",
    ),
    "the norm before a backward": (ONE, (moved("norm", before="backward block0 mb1 stage0"),), "the norm comes before"),
    "a bucket that is not updated": (ONE, (without(Kind.UPDATE),), "update head is missing"),
    "a bucket updated twice": (
        ONE, (lambda lane: [b for a in lane for b in ([a, a] if a.kind is Kind.UPDATE else [a])],), "updated already",
    ),
    "an update before the norm": (
        ONE, (lambda lane: sorted(lane, key=lambda a: a.kind in (Kind.NORM, Kind.END)),), "it needs norm first",
    ),
    "a lane that does not end": (ONE, (without(Kind.END),), "a lane ends with end"),
    "an end in the middle": (ONE, (moved("end", before="norm"),), "the end is a lane's last action"),
    "two norms": (ONE, (replaced("norm", "norm", "norm"),), "a lane has exactly one norm"),
    "an update after an older program's step": (ONE, (replaced("norm", "step"),), "has been updated already"),
    "no wait before the tie": (
        TIED, (replaced("wait tokens @dp"),), "may still be under way: it needs wait tokens @dp first",
    ),
    "no wait before the data reduction": (
        TIED, (without(Kind.WAIT, axis="tp"),), "may still be under way: it needs wait block1 @tp first",
    ),
    "the data axis before the tensor axis": (
        TIED, (moved("reduce block1 all_reduce @tp", before="norm"),), "it needs reduce block1 all_reduce @tp first",
    ),
    "waiting for the tie before the other end can come to it": (
        TIED, (same, lambda lane: [*_tie_at_once(lane)]), "waits for ever for",
    ),
    "doubled reductions": (
        DATA[0], (lambda lane: [b for a in lane for b in ([a, a] if a.kind is Kind.REDUCE else [a])],),
        "this has been reduced already, and would count double",
    ),
    "a reduction after the norm": (
        DATA[0], (lambda lane: sorted(lane, key=lambda a: a.kind is Kind.REDUCE),), "reduce them before the norm",
    ),
    "zero 2 reducing two micro-batches at once": (
        DATA[2], (moved("reduce block1 mb0 reduce_scatter @dp", before="reduce block1 mb1 reduce_scatter @dp"),),
        "block1 has one buffer under ZeRO-2 and 3",
    ),
    "zero 3 gathering twice": (
        DATA[3], (lambda lane: [b for a in lane for b in ([a, a] if a.kind is Kind.GATHER else [a])],),
        "is gathered already: release it first",
    ),
    "zero 3 never releasing": (DATA[3], (without(Kind.RELEASE),), "is gathered already: release it first"),
    "zero 3 keeping its parameters": (
        DATA[3], (lambda lane: [a for a in gathered_all_step(lane) if a.kind is not Kind.RELEASE],),
        "is still gathered: release it before the step ends",
    ),
    "zero 3 releasing what is not there": (
        DATA[3], (lambda lane: [reads("release head"), *lane],), "there is nothing to release",
    ),
    "zero 3 releasing before use": (
        DATA[3], (replaced("gather embedding all_gather @dp", "gather embedding all_gather @dp", "release embedding"),),
        "which may still be under way",
    ),
    "a release of parameters that ranks keep": (
        DATA[2], (lambda lane: [reads("release head"), *lane],), "only ZeRO-3 releases parameters",
    ),
    "a gather of no bucket": (
        DATA[3], (lambda lane: [reads("gather block7 all_gather @dp"), *lane],), "pipeline 0 has no bucket 'block7'",
    ),
    "a gather over another axis": (
        DATA[3], (replaced("gather head all_gather @dp", "gather head all_gather @tp"),), "write all_gather @dp",
    ),
}  # fmt: skip


def _tie_at_once(lane: Lane) -> Lane:
    """The tied sum as soon as the head's gradients are there, and a wait for it."""
    tie = next(a for a in lane if a.axis == "tie")
    dp = reads("reduce tokens all_reduce @dp")
    rest = [a for a in lane if a not in (tie, dp) and str(a) != "wait tokens @dp"]
    at = max(i for i, a in enumerate(rest) if a.kind is Kind.BACKWARD and a.unit == "head") + 1
    return [*rest[:at], dp, reads("wait tokens @dp"), tie, reads("wait tokens @tie"), *rest[at:]]


RIGHT: dict[str, tuple[Job, tuple[Rewrite, ...]]] = {
    "another schedule": (PIPE, ()),
    "receives posted early": (PIPE, (receives_first, receives_first)),
    "micro-batches the other way round": (PIPE, (other_way_round, other_way_round)),
    "reductions delayed": (TIED, (reductions_last, reductions_last)),
    "more waits": (TIED, (waiting, waiting)),
    "more waits under zero 2": (DATA[2], (waiting,)),
    "gathers hoisted": (DATA[3], (gathered_all_step,)),
    "zero 1 delayed": (DATA[1], (reductions_last,)),
    "zero 3 the other way round": (DATA[3], (other_way_round,)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_program_that_would_not_train_is_refused_in_words(name: str) -> None:
    job, rewrites, words = WRONG[name]
    program = rewritten(job, *rewrites)
    assert program != compile_job(job)
    said = refusal(program, job)
    assert words in said.splitlines()[0]
    assert "*" in said and "<-- here" in said


@pytest.mark.parametrize("name", RIGHT)
def test_a_program_that_is_different_but_right_passes(name: str) -> None:
    job, rewrites = RIGHT[name]
    gpipe = compile_job(replace(job, plan=replace(job.plan, schedule="gpipe")))
    program = rewritten(job, *rewrites) if rewrites else gpipe
    assert program != compile_job(job)
    check_program(program, job)


@pytest.mark.parametrize("job", [PIPE, TIED, *DATA.values()], ids=str)
def test_no_action_but_a_wait_can_be_left_out(job: Job) -> None:
    program = compile_job(job)
    for pp_rank, i, action in program:
        if action.kind is not Kind.WAIT:
            lanes = [lane[:i] + lane[i + 1 :] if z == pp_rank else lane for z, lane in enumerate(program.lanes)]
            refusal(Program(tuple(lanes)), job)


@pytest.mark.parametrize("job", [PIPE, TIED, *DATA.values()], ids=str)
def test_no_action_can_be_done_twice_but_a_wait(job: Job) -> None:
    program = compile_job(job)
    for pp_rank, i, action in program:
        if action.kind is not Kind.WAIT:
            lanes = [(*lane[:i], action, *lane[i:]) if z == pp_rank else lane for z, lane in enumerate(program.lanes)]
            refusal(Program(tuple(lanes)), job)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "rewrites"),
    [
        (
            {"dp": 2, "pp": 2, "zero": 1, "tied": True, "layers": 4},
            [lambda lane: reductions_last(receives_first(other_way_round(lane)))] * 2,
        ),
        ({"dp": 2, "zero": 3, "layers": 2}, [lambda lane: waiting(gathered_all_step(other_way_round(lane)))]),
    ],
    ids=["pipeline", "zero3"],
)
def test_a_program_that_is_different_but_right_trains_as_the_reference(
    options: dict[str, Any], rewrites: list[Rewrite]
) -> None:
    options |= {"hidden": 32, "seq": 16, "steps": 2, "batch": 8, "microbatches": 2}
    program = rewritten(Job.from_options(**options), *rewrites)
    assert program != compile_job(Job.from_options(**options))
    train(program=program, **options).assert_parity()


def test_the_runtime_has_a_handler_for_each_kind_and_no_other() -> None:
    assert set(HANDLERS.names) == set(KINDS.names)


def test_no_program_holds_a_kind_that_nobody_was_told_of() -> None:
    with pytest.raises(Unknown, match="there is no kind of action called 'offload'"):
        Program(((Action(Kind(name="offload", words="", acts_on="bucket")),),))
    with pytest.raises(Unknown, match="line 2: there is no kind of action called 'offload'"):
        Program.parse("pipeline 0:\n  offload block0")
