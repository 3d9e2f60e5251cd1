"""Programs with split backwards: what is wrong is refused in words, what is different but right passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.job.rules import check
from engine.program.checks.check import check_program
from engine.program.compile import compile_job
from engine.program.kinds import Kind
from engine.program.program import Action, Program
from tests.engine.rewriting import Lane, Rewrite, moved, other_way_round, reads, replaced, rewritten, same
from tests.engine.test_program import refusal

H1 = Job.from_options(pp=2, schedule="zb-h1", layers=4, microbatches=3, batch=6)
SHARDED = Job.from_options(
    dp=2, tp=2, pp=2, schedule="zb-h1", zero=3, tied=True, sequence_parallel=True, layers=4, microbatches=2
)
V = Job.from_options(dp=2, pp=2, schedule="zb-v", chunks=2, zero=1, tied=True, layers=4, microbatches=2)


def weights_last(lane: Lane) -> Lane:
    """Every weight part just before the norm, in order, as a reduction after it would have to be."""
    after = (Kind.NORM, Kind.UPDATE, Kind.GATHER, Kind.END)
    return sorted(lane, key=lambda a: (a.kind in after, a.kind is Kind.BACKWARD_WEIGHT))


WRONG: dict[str, tuple[Job, tuple[Rewrite, ...], str]] = {
    "no weight part": (
        H1, (replaced("backward_weight block1 mb1 stage0"),), "backward_weight block1 mb1 is missing",
    ),
    "a weight part before its input part": (
        H1, (moved("backward_weight block1 mb0 stage0", before="backward_input block1 mb0 stage0"),),
        "it needs backward_input block1 mb0 first (ready at t=",
    ),
    "an input part before that of the layer above": (
        H1, (moved("backward_input block0 mb0 stage0", before="backward_input block1 mb0 stage0"),),
        "it needs backward_input block1 mb0 first",
    ),
    "the embedding's backward before the block's": (
        H1, (moved("backward embedding mb0 stage0", before="backward_input block0 mb0 stage0"),),
        "it needs backward_input block0 mb0 first",
    ),
    "a gradient sent before its input part": (
        H1, (same, moved("send_grad mb0 stage1 ->pp0", before="backward_input block2 mb0 stage1")),
        "it needs backward_input block2 mb0 first",
    ),
    "a gradient received after its input part": (
        H1, (moved("recv_grad mb0 stage0 <-pp1", after="backward_input block1 mb0 stage0"),),
        "it needs recv_grad mb0 stage0 first",
    ),
    "an embedding split": (
        H1, (replaced("backward embedding mb0 stage0", "backward_input embedding mb0 stage0"),),
        "its backward is not split: write backward",
    ),
    "whole and split": (
        H1, (replaced("backward_input block1 mb0 stage0", "backward block1 mb0 stage0",
                      "backward_input block1 mb0 stage0"),), "this has a backward already",
    ),
    "a norm before the last weight part": (
        H1, (moved("norm", before="backward_weight block0 mb2 stage0"),), "the norm comes before it",
    ),
    "a reduction before the weight part": (
        SHARDED, (moved("reduce block0 mb0 reduce_scatter @dp", before="backward_weight block0 mb0 stage0"),),
        "these gradients are not complete: it needs backward_weight block0 mb0 stage0 first",
    ),
    "an input part without parameters": (
        SHARDED, (lambda lane: _without_next(lane, "gather block0 all_gather @dp", "send_act mb0 stage0 ->pp1"),),
        "the parameters of block0 are not gathered",
    ),
    "a tie where one rank holds both ends": (
        V, (replaced("norm", "reduce tokens all_reduce @tie", "norm"),),
        "it waits for ever for the other end of the tokens reduction",
    ),
    "a chunk on the wrong side of the V": (
        V, (lambda lane: [replace(a, peer=0) if a.kind is Kind.SEND_ACT else a for a in lane],),
        "stage1 lives on pipeline 1: write ->pp1",
    ),
}  # fmt: skip


def _without_next(lane: Lane, line: str, after: str) -> Lane:
    at = lane.index(reads(line), lane.index(reads(after)))
    return [*lane[:at], *lane[at + 1 :]]


@pytest.mark.parametrize("name", WRONG)
def test_a_split_that_would_not_train_is_refused_in_words(name: str) -> None:
    job, rewrites, words = WRONG[name]
    said = refusal(rewritten(job, *rewrites), job)
    assert words in said.splitlines()[0] and "*" in said and "<-- here" in said


RIGHT: dict[str, tuple[Job, tuple[Rewrite, ...]]] = {
    "weight parts as late as can be": (H1, (weights_last, weights_last)),
    "micro-batches the other way round": (H1, (other_way_round, other_way_round)),
    "one backward whole": (
        H1,
        (
            lambda lane: [
                replace(a, kind=Kind.BACKWARD) if a.kind is Kind.BACKWARD_INPUT and a.microbatch == 0 else a
                for a in lane
                if (a.kind, a.microbatch) != (Kind.BACKWARD_WEIGHT, 0)
            ],
        ),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_split_that_is_different_but_right_passes(name: str) -> None:
    job, rewrites = RIGHT[name]
    program = rewritten(job, *rewrites)
    assert program != compile_job(job)
    check_program(program, job)


@pytest.mark.parametrize("job", [H1, SHARDED, V], ids=["h1", "sharded", "v"])
@pytest.mark.parametrize("times", [0, 2])
def test_no_action_but_a_wait_can_be_left_out_or_done_twice(job: Job, times: int) -> None:
    program = compile_job(job)
    for pp_rank, i, action in program:
        if action.kind is not Kind.WAIT:
            again: tuple[Action, ...] = (action,) * times
            lanes = [
                (*lane[:i], *again, *lane[i + 1 :]) if z == pp_rank else lane for z, lane in enumerate(program.lanes)
            ]
            refusal(Program(tuple(lanes)), job)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": "zb-v", "pp": 2}, "schedule=zb-v runs two model chunks on each rank and chunks=1: use chunks=2."),
        ({"schedule": "zb-v", "pp": 2, "chunks": 3, "layers": 6}, "and chunks=3: use chunks=2."),
        ({"schedule": "zb-h1"}, "schedule=zb-h1 needs a pipeline and pp=1: use pp=2 or more, or schedule=1f1b."),
        ({"schedule": "zb-h2", "pp": 2, "chunks": 2}, "schedule=zb-h2 has one chunk: use chunks=1."),
        ({"schedule": "zb-v", "pp": 4, "chunks": 2}, "makes 8 stages and layers=4 cannot fill them"),
    ],
)
def test_a_zero_bubble_plan_that_cannot_be_is_refused_in_words(options: dict[str, object], words: str) -> None:
    with pytest.raises(JobRefused) as refused:
        check(Job.from_options(**options))
    assert words in str(refused.value)
