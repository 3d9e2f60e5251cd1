"""Predict, then reveal: the run starts with the answer, and what is said of it is right."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import ipywidgets
import pytest

from engine.job.job import Job
from lab.facade import Run
from lab.learning.progress import Learner
from lab.running.simulation import simulate
from lab.widgets.question.answer import Choices, Number, answers
from lab.widgets.question.question import Question

FEEDBACK = {"1/4": "That is the ratio of one schedule.", "3/7": "(p−1)/(m+p−1).", "3/4": "That is (p−1)/m, the ratio."}


def gpipe() -> Run:
    return simulate(job=Job.from_options(pp=4, schedule="gpipe", microbatches=4))


def asked(learner: Learner, **changes: Any) -> Question:
    parts: dict[str, Any] = {"answers": Choices(FEEDBACK), "truth": lambda run: "3/7", "run": gpipe}
    parts["then"] = lambda run: ipywidgets.HTML()
    return Question("key", "How large is the bubble?", **(parts | changes), learner=learner)


def answered(question: Question, given: Any) -> Question:
    assert question.answer(given)
    assert question.settle(60)
    return question


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    return Learner(tmp_path / "learner.json")


def test_nothing_runs_before_the_answer(learner: Learner) -> None:
    began = threading.Event()

    def run() -> Run:
        began.set()
        return gpipe()

    question = asked(learner, run=run)
    assert not question.answer("a guess that is not on offer")
    assert "choose 1/4, 3/7, 3/4" in question.form.hint
    assert not began.is_set()
    answered(question, "3/7")
    assert began.is_set()


def test_the_right_answer_is_called_right_and_explained(learner: Learner) -> None:
    form = answered(asked(learner), "3/7").form
    assert form.state == "answered"
    assert form.feedback == "Right: 3/7.\n(p−1)/(m+p−1)."


def test_a_wrong_answer_hears_why_it_tempts_and_what_was_right(learner: Learner) -> None:
    form = answered(asked(learner), "3/4").form
    assert form.feedback.splitlines() == [
        "You said 3/4; the run says 3/7.", "That is (p−1)/m, the ratio.", "(p−1)/(m+p−1).",
    ]  # fmt: skip


def test_the_answer_is_kept_and_remembered_the_next_time(learner: Learner) -> None:
    answered(asked(learner), "1/4")
    assert learner.get("prediction", "key") == {"given": "1/4", "right": False}
    assert asked(learner).form.hint == "You answered this before: 1/4, not right."


def test_an_answer_cannot_be_changed_until_the_question_is_asked_again(learner: Learner) -> None:
    question = answered(asked(learner), "1/4")
    assert not question.answer("3/7")
    question.ask_again()
    assert answered(question, "3/7").form.feedback.startswith("Right")


def test_a_run_that_fails_is_told_and_the_question_stays_open(learner: Learner) -> None:
    def broken() -> Run:
        raise RuntimeError("rank 3 went away")

    form = answered(asked(learner, run=broken), "3/7").form
    assert (form.state, form.hint) == ("open", "The run did not end well: rank 3 went away")
    assert learner.get("prediction", "key") is None


def test_a_truth_that_was_not_on_offer_is_a_fault_that_is_told(learner: Learner) -> None:
    form = answered(asked(learner, truth=lambda run: "2/5"), "3/7").form
    assert "the run says '2/5', which was not on offer" in form.hint


@pytest.mark.parametrize("given", [None, 3, [3], {"3/7": 1}])
def test_an_answer_of_another_type_is_answered_in_words(learner: Learner, given: Any) -> None:
    question = asked(learner)
    assert not question.answer(given)
    assert "is not one of the answers" in question.form.hint


@pytest.mark.parametrize("given", ["many", None, float("nan"), 101, -1, [3], 10**400])
def test_what_is_no_number_on_the_scale_is_answered_in_words(learner: Learner, given: Any) -> None:
    question = asked(learner, answers=Number("%", 0, 100), truth=lambda run: 43)
    assert not question.answer(given)
    assert "from 0 to 100" in question.form.hint


def test_a_number_within_a_tenth_of_the_scale_is_close() -> None:
    scale = Number("%", 0, 100, "Idle ÷ total.")
    assert scale.judge(50, 42.9) == (True, "Close: you said 50, 7.1 too high. The run says 42.9 %.\nIdle ÷ total.")
    assert scale.judge(20, 42.9)[0] is False
    assert scale.judge(42.9, 42.9)[1].startswith("Close: you said 42.9, just that.")


def test_a_question_has_either_choices_or_a_scale() -> None:
    with pytest.raises(ValueError, match="either choices"):
        answers(None, None)
    with pytest.raises(ValueError, match="asks nothing"):
        answers({"yes": ""}, None)


class Unspeakable(Exception):
    """One that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


@pytest.mark.parametrize("given", [None, ["3/7"], {"a": 1}, "x" * 10**6, Unspeakable()])
def test_an_answer_of_any_kind_that_was_not_on_offer_is_refused_in_a_few_words(learner: Learner, given: Any) -> None:
    question = asked(learner)
    assert not question.answer(given)
    assert question.form.state == "open"
    assert "choose 1/4, 3/7, 3/4" in question.form.hint and len(question.form.hint) < 200


@pytest.mark.parametrize("part", ["run", "truth", "then"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), Unspeakable()])
def test_whatever_a_question_function_raises_the_question_is_open_again(
    learner: Learner, part: str, error: BaseException
) -> None:
    def broken(*_: object) -> Run:
        raise error

    form = answered(asked(learner, **{part: broken}), "3/7").form
    assert form.state == "open"
    assert form.hint.startswith(f"The run did not end well: {type(error).__name__}")


def test_what_is_shown_must_be_a_widget_and_a_question_says_so(learner: Learner) -> None:
    form = answered(asked(learner, then=lambda run: run), "3/7").form
    assert form.state == "open"
    assert "`then` must return what `lab.view` and kin do, and returned a StoredRun" in form.hint


def test_an_answer_that_cannot_be_kept_is_judged_all_the_same(learner: Learner) -> None:
    question = asked(learner)
    learner.path.parent.joinpath(f".{learner.path.name}.lock").mkdir()
    form = answered(question, "3/7").form
    assert form.state == "answered" and form.feedback.startswith("Right")
    assert form.hint.startswith("This answer is not kept: ")


@pytest.mark.parametrize("entry", [{}, {"given": "1/4"}, {"right": True}])
def test_a_record_of_another_form_is_passed_over(learner: Learner, entry: dict[str, Any]) -> None:
    learner.record("prediction", "key", entry)
    assert asked(learner).form.hint == ""


@pytest.mark.parametrize("message", [None, [], "answer", {}, {"kind": "answer"}, {"kind": "answer", "value": [1]}])
def test_messages_that_make_no_sense_leave_the_question_as_it_was(learner: Learner, message: Any) -> None:
    question = asked(learner)
    question._on_message(message)
    assert question.form.state == "open"


def test_a_question_under_way_is_not_asked_again(learner: Learner) -> None:
    go = threading.Event()

    def run() -> Run:
        go.wait(60)
        return gpipe()

    question = asked(learner, run=run)
    assert question.answer("3/7")
    question.ask_again()
    assert question.form.state == "running"
    assert not question.answer("1/4")
    go.set()
    assert question.settle(60)
    assert question.form.given == "3/7"


@pytest.mark.parametrize("truth", [None, "many", float("nan"), 10**400, [1]])
def test_a_truth_that_is_no_number_is_a_fault_that_is_told(learner: Learner, truth: Any) -> None:
    form = answered(asked(learner, answers=Number("%", 0, 100), truth=lambda run: truth), 5).form
    assert form.state == "open"
    assert "which is no number" in form.hint


@pytest.mark.parametrize("number", [("%",), ("%", 100, 0), ("%", "a", "b"), ("%", 0, float("nan")), 5])
def test_a_scale_that_is_none_is_refused_in_words(number: Any) -> None:
    with pytest.raises(ValueError, match=r"number is \(unit, low, high"):
        answers(None, number)


@pytest.mark.parametrize("choices", [["a", "b"], "ab", {1: "a", 2: "b"}])
def test_choices_that_are_none_are_refused_in_words(choices: Any) -> None:
    with pytest.raises(ValueError, match="choices are text"):
        answers(choices, None)
