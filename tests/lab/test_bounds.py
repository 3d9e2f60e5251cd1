"""What is beyond bounds, or of another kind, is refused before anything starts: in a sentence, short, in our words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import lab
from engine.job.errors import JobRefused, UserError, short, told
from engine.job.job import Job
from engine.job.rules import MAX_LR, check
from lab.running.execute import checked

LONG = "x" * 5000
NUMBERS = (
    "layers", "hidden", "heads", "seq", "vocab", "dp", "tp", "pp", "zero", "microbatches", "chunks", "bucket_kb",
    "prefetch", "steps", "batch", "seed",
)  # fmt: skip
FLOATS = ("lr", "clip", "dropout")
NAMES = (
    "family", "schedule", "recompute", "order", "axes", "precision", "text", "cluster", "partition",
    "sequence_parallel", "tied", "overlap",
)  # fmt: skip


def refusal(**options: Any) -> str:
    with pytest.raises(JobRefused) as told:
        checked(Job.from_options(**options))
    return str(told.value)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [10**30, 10**5000], ids=["10^30", "10^5000"])
def test_a_number_beyond_reason_is_refused_and_named_shortly(name: str, value: int) -> None:
    words = refusal(**{name: value})
    assert name in words and len(words) < 400


@pytest.mark.parametrize("name", [*NUMBERS, *FLOATS])
@pytest.mark.parametrize("value", [math.nan, None, True, [1], LONG], ids=["nan", "None", "True", "list", "long text"])
def test_a_number_of_another_kind_is_refused_in_our_words(name: str, value: object) -> None:
    words = refusal(**{name: value})
    assert words.startswith(f"{name}=") and len(words) < 300 and "Input" not in words
    assert "a whole number." in words or "a number." in words or (name in FLOATS and "nan" in words)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [LONG, "x " * 2500, math.nan], ids=["a word", "words", "nan"])
def test_what_was_typed_is_repeated_shortly(name: str, value: object) -> None:
    words = refusal(**{name: value})
    assert name in words and len(words) < 700 and "Input" not in words


def test_a_refusal_keeps_its_beginning_and_its_end() -> None:
    assert told("a" * 5000) == f"'{'a' * 69}…' (5,000 characters)" and told("dp") == "'dp'"
    assert short(f"the file /{LONG}/job.toml is not there: name another.").endswith(
        "/job.toml is not there: name another."
    )
    assert len(str(UserError(f"no option {LONG}: see --help."))) < 200


def test_the_largest_learning_rate_is_one_that_torch_can_step_with() -> None:
    ones = torch.ones(2)
    torch.zeros(2).addcdiv_(ones, ones, value=-MAX_LR / (1 - 0.9))  # as the first step of Adam does
    with pytest.raises(RuntimeError, match="overflow"):
        torch.zeros(2).addcdiv_(ones, ones, value=-3.5e37 / (1 - 0.9))
    check(Job.from_options(lr=MAX_LR))
    assert "use at most 1e+37" in refusal(lr=3.5e37)


def test_as_many_steps_as_can_be_kept_are_a_job() -> None:
    check(Job.from_options(steps=10**6))
    assert refusal(steps=10**6 + 1) == "steps=1000001 is too large: use at most 1,000,000."


PLANS: dict[str, dict[str, Any]] = {
    "gpus=nan is": {"gpus": math.nan},
    "gpus='8' is": {"gpus": "8"},
    "gpus=None is": {"gpus": None},
    "gpus=8.5 is": {"gpus": 8.5},
    "gpus=0 is": {"gpus": 0},
    "refine=-1 is": {"refine": -1},
    "model=5 is": {"model": 5},
    "cluster=5 is": {"cluster": 5},
    "reserve_gb='x' is": {"reserve_gb": "x"},
    "reserve_gb=-1 is": {"reserve_gb": -1},
}


@pytest.mark.parametrize("words", PLANS)
def test_the_planner_refuses_what_is_of_another_kind(words: str) -> None:
    arguments: dict[str, Any] = {"model": "gpt2-small", "gpus": 8} | PLANS[words]
    with pytest.raises(JobRefused, match=f"^{words} .*: use .*\\.$"):
        lab.plan(**arguments)


def test_the_planner_takes_the_whole_numbers_of_numpy() -> None:
    none: Any = np.int64(0)
    with pytest.raises(JobRefused, match=r"^gpus=0 is too small: use 1 or more\."):
        lab.plan(model="gpt2-small", gpus=none)


@pytest.mark.parametrize("arguments", [{"model": 5}, {"job": 5}, {"program": 5}, {"cluster": 5}])
def test_a_simulation_refuses_what_is_of_another_kind(arguments: dict[str, Any]) -> None:
    name = next(iter(arguments))
    with pytest.raises(JobRefused, match=f"^{name}=5 is not valid: use "):
        lab.simulate(**arguments)
