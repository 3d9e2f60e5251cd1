"""Programs as text, their differences, and what the checks refuse."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.program.checks.check import ProgramError, check_program
from engine.program.compile import compile_job
from engine.program.kinds import Kind
from engine.program.program import Action, Program

PIPELINE = Job.from_options(pp=2, layers=4, microbatches=3, batch=6)
SHARDED = Job.from_options(dp=2, zero=3, layers=2, microbatches=2)


@settings(deadline=None, max_examples=40)
@given(
    dp=st.sampled_from([1, 2]), tp=st.sampled_from([1, 2]), pp=st.sampled_from([1, 2, 4]), zero=st.integers(0, 3),
    tied=st.booleans(), scatter=st.booleans(), overlap=st.booleans(), prefetch=st.integers(0, 3), keep=st.booleans(),
    schedule=st.sampled_from(SCHEDULES.names),
)  # fmt: skip
def test_every_compiled_program_passes_its_checks_and_survives_its_text(
    dp: int,
    tp: int,
    pp: int,
    zero: int,
    tied: bool,
    scatter: bool,
    overlap: bool,
    prefetch: int,
    keep: bool,
    schedule: str,
) -> None:
    if schedule in ("interleaved", "zb-h1", "zb-h2", "zb-v") and pp == 1:
        return
    job = Job.from_options(
        dp=dp, tp=tp, pp=pp, zero=zero, tied=tied, sequence_parallel=scatter, overlap=overlap, prefetch=prefetch,
        keep_gathered=keep, schedule=schedule, chunks=2 if schedule in ("interleaved", "zb-v") else 1, layers=8,
    )  # fmt: skip
    program = compile_job(job)
    check_program(program, job)
    assert Program.parse(program.text()) == program


def test_the_difference_of_two_plans_shows_what_zero_3_adds() -> None:
    before = compile_job(Job.from_options(dp=2, layers=1, microbatches=1))
    after = compile_job(Job.from_options(dp=2, layers=1, microbatches=1, zero=3))
    changes = before.diff(after).splitlines()
    added = [line[1:].strip() for line in changes if line.startswith("+")]
    assert [line[1:].strip() for line in changes if line.startswith("-")] == [
        "reduce head all_reduce @dp",
        "reduce block0 all_reduce @dp",
        "reduce embedding all_reduce @dp",
    ]
    assert "gather block0 all_gather @dp" in added and "reduce block0 mb0 reduce_scatter @dp" in added
    assert not [line for line in added if line.startswith(("forward", "backward"))]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("forward block0", "line 1: expected 'pipeline 0:'"),
        (
            "pipeline 0:\n  foward block0 mb0",
            "line 2: there is no kind of action called 'foward': did you mean forward?",
        ),
        ("pipeline 0:\n  forward blok0 mb0", "line 2: cannot read 'blok0'"),
        ("pipeline 0:\n  step\npipeline 2:\n  step", "line 3: expected 'pipeline 1:' here, found 'pipeline 2:'"),
        ("pipeline 1:\n  step", "line 1: expected 'pipeline 0:' here, found 'pipeline 1:'"),
        ("pipeline 0:\n  forward block0 mb0 mb1", "line 2: 'mb1' in 'forward block0 mb0 mb1' is one too many"),
    ],
)
def test_unreadable_program_text_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        Program.parse(text)
    assert words in str(refused.value)


def changed(program: Program, pp_rank: int, new: list[Action]) -> Program:
    return Program(tuple(tuple(new) if z == pp_rank else old for z, old in enumerate(program.lanes)))


def refusal(program: Program, job: Job) -> str:
    with pytest.raises(ProgramError) as refused:
        check_program(program, job)
    return str(refused.value)


def test_a_missing_forward_is_named_with_the_grid() -> None:
    program = compile_job(PIPELINE)
    lane = [a for a in program.lanes[0] if (a.kind, a.unit, a.microbatch) != (Kind.FORWARD, "block1", 2)]
    said = refusal(changed(program, 0, lane), PIPELINE)
    assert "forward block1 mb2 is missing" in said and "<-- here" in said and "pipeline 1:" in said


def test_a_backward_before_its_forward_is_refused() -> None:
    program = compile_job(PIPELINE)
    lane = list(program.lanes[1])
    f = next(i for i, a in enumerate(lane) if a.kind is Kind.FORWARD and a.unit == "head")
    b = next(i for i, a in enumerate(lane) if a.kind is Kind.BACKWARD and a.unit == "head")
    lane[f], lane[b] = lane[b], lane[f]
    assert "it needs forward head mb0 first" in refusal(changed(program, 1, lane), PIPELINE)


def test_a_message_nobody_receives_and_one_nobody_sends_are_refused() -> None:
    program = compile_job(PIPELINE)
    unsent = [a for a in program.lanes[0] if not (a.kind is Kind.SEND_ACT and a.microbatch == 1)]
    assert "pipeline 0 never sends it" in refusal(changed(program, 0, unsent), PIPELINE)
    unread = [a for a in program.lanes[0] if not (a.kind is Kind.RECV_GRAD and a.microbatch == 1)]
    assert "nobody receives it" in refusal(changed(program, 0, unread), PIPELINE)


def test_two_lanes_that_wait_for_each_other_are_a_deadlock() -> None:
    program = compile_job(PIPELINE)
    lane = list(program.lanes[0])
    # stage 0 sends micro-batch 0 only after it has the gradient that stage 1 can make only from it
    send = next(a for a in lane if a.kind is Kind.SEND_ACT and a.microbatch == 0)
    lane.remove(send)
    last = max(i for i, a in enumerate(lane) if a.kind is Kind.BACKWARD and a.microbatch == 0)
    lane.insert(last + 1, send)
    said = refusal(changed(program, 0, lane), PIPELINE)
    assert "waits for ever for" in said


def test_computing_with_released_parameters_is_refused() -> None:
    program = compile_job(SHARDED)
    lane = [a for a in program.lanes[0] if not (a.kind is Kind.GATHER and a.unit == "block1")]
    assert "the parameters of block1 are not gathered" in refusal(changed(program, 0, lane), SHARDED)


def test_a_gradient_left_unreduced_is_refused() -> None:
    job = replace(SHARDED, plan=replace(SHARDED.plan, zero=0))
    program = compile_job(job)
    lane = [a for a in program.lanes[0] if a.kind is not Kind.REDUCE]
    assert "are not reduced over dp" in refusal(changed(program, 0, lane), job)


def test_unknown_units_lanes_and_microbatches_are_refused() -> None:
    program = compile_job(PIPELINE)
    lane = list(program.lanes[0])
    assert "no unit 'block9'" in refusal(changed(program, 0, [Action(Kind.FORWARD, "block9", 0, 0), *lane]), PIPELINE)
    assert "from mb0 to mb2" in refusal(changed(program, 0, [replace(lane[0], microbatch=9), *lane]), PIPELINE)
    assert "needs 2" in refusal(Program(program.lanes[:1]), PIPELINE)
