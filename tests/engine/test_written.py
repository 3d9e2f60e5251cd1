"""Schedules written by hand: read, expanded like any other, refused in words, and run."""

from __future__ import annotations

from typing import Any

import pytest

from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.program.checks.check import ProgramError
from engine.program.compile import compile_job
from engine.program.handwritten import schedule_program
from engine.program.program import Lanes
from engine.program.schedules.one_f_one_b import forward, one_f_one_b
from engine.program.schedules.text import written_lanes, written_text
from engine.program.schedules.zero_bubble import zb_v
from tests.engine.running import train

PIPE: dict[str, Any] = {"pp": 2, "layers": 4, "microbatches": 3, "batch": 6}
ONE_F_ONE_B = """
F0 F1 B0 F2 B1 B2   # the first rank runs one forward ahead

F0 B0 F1 B1 F2 B2
"""
V_SHAPE = {"pp": 2, "layers": 4, "schedule": "zb-v", "chunks": 2, "microbatches": 4}


@pytest.mark.parametrize("more", [{}, {"dp": 2, "zero": 3, "tied": True}, {"overlap": False}], ids=str)
def test_1f1b_written_by_hand_is_the_compiled_1f1b(more: dict[str, Any]) -> None:
    job = Job.from_options(**PIPE | more)
    assert schedule_program(job, ONE_F_ONE_B) == compile_job(job)


def test_a_function_may_return_text_or_lanes() -> None:
    job = Job.from_options(**PIPE)
    gpipe = Job.from_options(**PIPE, schedule="gpipe")

    def all_forwards_first(p: int, m: int, v: int) -> str:
        line = " ".join([f"F{k}" for k in range(m)] + [f"B{k}" for k in range(m)])
        return "\n".join([line] * p)

    assert schedule_program(job, all_forwards_first) == compile_job(gpipe)
    assert schedule_program(job, one_f_one_b) == schedule_program(job, one_f_one_b(2, 3, 1)) == compile_job(job)


@pytest.mark.parametrize("schedule", SCHEDULES.names)
def test_every_schedule_survives_its_text(schedule: str) -> None:
    chunks = 2 if schedule in ("interleaved", "zb-v") else 1
    job = Job.from_options(pp=4, layers=8, schedule=schedule, chunks=chunks, microbatches=8)
    lanes = SCHEDULES[schedule].order(4, 8, chunks)
    assert written_lanes(job, written_text(job, lanes)) == lanes


def test_chunks_are_numbered_along_the_model_whatever_the_shape() -> None:
    job = Job.from_options(**V_SHAPE)
    text = written_text(job, zb_v(2, 4, 2))
    assert text.startswith("F0c0 F1c0 F2c0 F0c1 I0c1 W0c1")
    assert [a.stage for a in written_lanes(job, text)[0]][:4] == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("F0 F1 F2 B0 B1 B2", "the schedule has 1 ranks and pp=2: write 2 lines, one a rank."),
        (f"{ONE_F_ONE_B}\nF0 B0", "the schedule has 3 ranks and pp=2"),
        ("", "the schedule has 0 ranks"),
        ("F0 F1 F2 B0 B1 B2\nF0 Q0", "line 2: cannot read 'Q0': write F0, B0, I0 or W0"),
        ("F0 F1 F2 B0 B1 B2\nF0 B", "line 2: cannot read 'B'"),
        ("F0c1 F1 F2 B0 B1 B2\nF0", "line 1: 'F0c1' is of chunk 1 and chunks=1: write c0 or no chunk."),
    ],
)
def test_text_that_cannot_be_read_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        written_lanes(Job.from_options(**PIPE), text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("lanes", "words"),
    [
        (((forward(1, 0),), ()), "rank 0: forward mb0 stage1 is not of this rank: its stages are 0."),
        (compile_job(Job.from_options(**PIPE)).lanes, "is not of a schedule: write forwards and backwards"),
    ],
    ids=["another rank's stage", "a whole program"],
)
def test_lanes_of_something_else_are_refused(lanes: Lanes, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        written_lanes(Job.from_options(**PIPE), lanes)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("F0 F1 B0 B1\nF0 B0 F1 B1 F2 B2", "forward embedding mb2 is missing"),
        ("F0 F1 B0 F2 B1 B2\nF0 B0 F1 F2 B2", "backward block2 mb1 is missing"),
        ("F0 F1 B0 F2 B1 B2\nB0 F0 F1 B1 F2 B2", "it needs forward head mb0 first"),
        ("F0 F1 B0 F2 B1 B2\nF0 F0 B0 F1 B1 F2 B2", "this has been done already"),
        ("F0 F1 B0 F2 B1 B2\nF0 F1 F2 B2 F7 B0 B1", "micro-batches run from mb0 to mb2"),
        # rank 0 wants the gradient of micro-batch 2 before it has made what rank 1 makes it from
        ("F0 B0 F1 B1 B2 F2\nF0 B0 F1 B1 F2 B2", "it needs forward block1 mb2 first"),
        ("F0 B0 F1 B1 F2 B2\nF0 F1 B0 B1 F2 B2", "it waits for ever for send_grad mb0 from pipeline 1"),
        ("F0 I0 F1 B1 F2 B2\nF0 B0 F1 B1 F2 B2", "backward_weight block0 mb0 is missing"),
        ("F0 W0 I0 F1 B1 F2 B2\nF0 B0 F1 B1 F2 B2", "it needs backward_input block1 mb0 first"),
        ("F0 B0 I0 W0 F1 B1 F2 B2\nF0 B0 F1 B1 F2 B2", "this has been done already"),
        ("F0 B0 W0 F1 B1 F2 B2\nF0 B0 F1 B1 F2 B2", "this has a backward already"),
    ],
)
def test_an_order_that_would_not_train_is_refused_with_the_grid_and_what_is_missing(text: str, words: str) -> None:
    with pytest.raises(ProgramError) as refused:
        schedule_program(Job.from_options(**PIPE), text)
    said = str(refused.value)
    assert words in said.splitlines()[0] and "<-- here" in said and "*" in said


def test_ranks_may_take_micro_batches_in_orders_of_their_own() -> None:
    options = {"hidden": 32, "seq": 16, "batch": 12, "steps": 2, "pp": 2, "layers": 4, "microbatches": 3}
    text = "F2 F0 F1 B0 B2 B1\nF1 F0 B0 F2 B2 B1"
    program = schedule_program(Job.from_options(**options), text)
    train(program=program, **options).assert_parity()


def test_a_schedule_written_by_hand_trains_what_one_process_trains() -> None:
    options = {"hidden": 32, "seq": 16, "batch": 12, "steps": 2, "pp": 2, "layers": 4, "microbatches": 3}
    text = "F0 F1 F2 I0 B1 I2 W0 W2\nF0 B0 F1 I1 F2 W1 I2 W2"
    program = schedule_program(Job.from_options(**options), text)
    train(program=program, **options).assert_parity()


@pytest.mark.parametrize("found", [None, 5, ["F0"], [["F0"]], object()])
def test_a_function_that_returns_no_schedule_is_refused_in_words(found: Any) -> None:
    with pytest.raises(ValueError, match="a schedule is text with a line for each rank, or lanes of actions, and"):
        written_lanes(Job.from_options(pp=2), lambda p, m, v: found)


def test_more_actions_than_a_rank_can_have_are_refused_before_they_are_read() -> None:
    with pytest.raises(ValueError, match=r"line 1: 1,000,000 actions, and a rank has at most 9"):
        written_lanes(Job.from_options(**PIPE), "F0 " * 10**6)
