"""The rule by which a run equals one process, on numbers written by hand, and the words for what it found."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from lab.verdict import Curve, Distances, TensorDistances, brief, judged, verdict_of

NAN = math.nan
TENSOR = TensorDistances("block1.up.bias", (0.0, 0.0, 0.0), (0, 0, 1), (0.0, 0.0, 0.0))


def distances(loss: list[float], other: list[float], alone: tuple[float, ...] = (2.0, 2.0, 2.0)) -> Distances:
    """Three steps whose gradient norms and weights are equal in all."""
    norms = Curve((1.0,) * 3, (1.0,) * 3, (1.0,) * 3)
    curve = Curve(tuple(loss), alone, tuple(other))
    return Distances(loss=curve, grad_norm=norms, weights=(TENSOR,), watched=(0, 1, 2), param=0.0, floor_param=0.0)


def state(found: Distances) -> tuple[str, int | None]:
    row = judged(found)
    assert row["passed"] is (row["state"] in ("equal", "rounding"))
    return row["state"], row["first_step_out"]


def test_a_run_within_1e_5_in_every_step_is_equal() -> None:
    assert state(distances([2.0, 2.0, 2.0 + 1.9e-5], [2.0, 2.0, 2.0])) == ("equal", None)


def test_a_run_that_leaves_while_the_floor_is_tiny_is_different_from_that_step_on() -> None:
    assert state(distances([2.0, 2.0 + 2.1e-5, 2.0], [2.0, 2.0, 2.0])) == ("different", 1)


def test_a_run_that_leaves_with_a_grown_floor_is_equal_until_that_step() -> None:
    assert state(distances([2.0, 2.0, 2.0 + 1.9e-4], [2.0, 2.0, 2.0 + 2e-5])) == ("rounding", 2)


def test_a_hundred_times_the_floor_is_allowed_and_not_more() -> None:
    assert state(distances([2.0, 2.0, 2.0 + 1.9e-3], [2.0, 2.0, 2.0 + 2e-5])) == ("rounding", 2)
    assert state(distances([2.0, 2.0, 2.0 + 2.1e-3], [2.0, 2.0, 2.0 + 2e-5])) == ("different", 2)


def test_a_floor_that_grows_later_excuses_nothing_before() -> None:
    assert state(distances([2.0 + 8e-5, 2.0, 2.0], [2.0, 2.0, 2.1])) == ("different", 0)


def test_a_floor_that_was_high_once_stays_high() -> None:
    assert state(distances([2.0, 2.0, 2.0 + 1e-3], [2.0, 2.1, 2.0])) == ("rounding", 2)


def test_a_run_whose_losses_alone_agree_is_judged_by_its_norms_too() -> None:
    found = distances([2.0] * 3, [2.0] * 3)
    assert state(replace(found, grad_norm=Curve((1.0, 1.1, 1.0), (1.0,) * 3, (1.0,) * 3))) == ("different", 1)


def test_the_first_tensor_that_leaves_is_named_with_its_rank() -> None:
    late = TensorDistances("block0.down.weight", (0.0, 0.0, 3e-1), (0, 0, 0), (0.0,) * 3)
    early = TensorDistances("block3.norm1.bias", (0.0, 2e-5, 4e-5), (0, 2, 3), (0.0,) * 3)
    row = judged(replace(distances([2.0] * 3, [2.0] * 3), weights=(TENSOR, late, early)))
    assert row["first_out"] == {"step": 1, "quantity": "weights"}
    assert row["tensor_out"] == {"step": 1, "unit": "block3", "tensor": "norm1.bias", "rank": 2}
    words = "first out: step 1, weights; first weights: after step 1, block3 norm1.bias, rank 2"
    assert verdict_of(row).microscope == words
    assert row["limits"]["weights"]["unit"] == "block0", "the furthest beyond its limit"


def test_each_tensor_has_its_own_floor() -> None:
    noisy = TensorDistances("block0.key.bias", (0.0, 5e-5, 5e-5), (0, 0, 0), (0.0, 1e-5, 1e-5))
    calm = TensorDistances("block0.up.weight", (0.0, 5e-5, 5e-5), (0, 0, 0), (0.0, 1e-7, 1e-7))
    found = distances([2.0] * 3, [2.0] * 3)
    assert state(replace(found, weights=(noisy,))) == ("rounding", 1)
    assert state(replace(found, weights=(noisy, calm))) == ("different", 1)


def test_weights_that_were_not_looked_at_in_a_step_are_not_judged_there() -> None:
    seldom = TensorDistances("block0.up.weight", (None, None, 1e-7), (0, 0, 0), (None, None, 1e-7))
    assert state(replace(distances([2.0] * 3, [2.0] * 3), weights=(seldom,))) == ("equal", None)


def test_a_training_that_diverges_alike_in_one_process_is_a_state_of_its_own() -> None:
    found = distances([2.0, 2.0, NAN], [2.0, 2.0, NAN], (2.0, 2.0, NAN))
    lost = TensorDistances("block0.up.weight", (0.0, NAN, NAN), (0, 0, 0), (0.0, NAN, NAN))
    row = judged(replace(found, weights=(lost,), param=NAN))
    assert (row["state"], row["passed"], row["first_step_out"]) == ("diverged", False, 2)
    assert row["diverged"] == {"run": 2, "one_process": 2}
    assert "no number from step 2 on, in one process from step 2 on" in verdict_of(row).why


def test_orders_may_diverge_a_step_apart() -> None:
    assert state(distances([2.0, 2.0, math.inf], [2.0, NAN, NAN], (2.0, 2.0, 2.0))) == ("diverged", 1)


def test_a_run_that_alone_diverges_is_different() -> None:
    row = judged(distances([2.0, NAN, NAN], [2.0, 2.0, 2.0]))
    assert (row["state"], row["first_step_out"]) == ("different", 1)


def test_what_left_before_it_diverged_is_different() -> None:
    assert state(distances([2.0, 2.1, NAN], [2.0, 2.0, NAN], (2.0, 2.0, NAN))) == ("different", 1)


def test_equal_infinities_are_no_equal_losses() -> None:
    assert state(distances([2.0, math.inf, 2.0], [2.0, math.inf, 2.0], (2.0, math.inf, 2.0))) == ("diverged", 1)


@pytest.mark.parametrize("change", [{"param": NAN}, {"weights": ()}, {"moved": (False, True)}], ids=str)
def test_weights_that_nobody_compared_or_that_alone_stood_still_never_pass(change: dict[str, Any]) -> None:
    assert judged(replace(distances([2.0] * 3, [2.0] * 3), **change))["passed"] is False


def test_a_run_whose_weights_did_not_move_says_so() -> None:
    found = judged(replace(distances([2.0] * 3, [2.0] * 3), moved=(False, False)))
    assert found["state"] == "equal"
    assert "No weight of this run moved; neither did those of one process" in verdict_of(found).why


def test_distances_come_back_from_json_as_they_were() -> None:
    found = distances([2.0, NAN, math.inf], [2.0, 2.1, NAN], (2.0, -math.inf, 2.0))
    again = Distances.from_json(found.to_json())
    assert repr(again) == repr(found)  # NaN equals nothing


@pytest.mark.parametrize("off", [1e-7, 9.99e-6, 1.0000001e-5, 1.04e-5, 3e-4, 0.5, NAN])
@pytest.mark.parametrize("floor", [0.0, 1e-6, 1.04e-6, 3e-5, 0.1])
def test_no_words_ever_contradict_the_state(off: float, floor: float) -> None:
    """Numbers and limits as printed say what the badge says, whatever they are."""
    verdict = verdict_of(plainly(judged(distances([2.0, 2.0 * (1 + off), 2.0], [2.0, 2.0 * (1 + floor), 2.0]))))
    printed = [(one.off_by, one.limit, one.inside) for one in verdict.judged]
    for value, limit, inside in printed:
        assert inside is (value != "not a number" and float(value) <= float(limit))
    assert verdict.badge.passed is all(inside for *_, inside in printed)


def plainly(row: dict[str, Any]) -> dict[str, Any]:
    """As JSON keeps it: null for what is no number."""
    from lab.store.summary import plain

    found: dict[str, Any] = plain(row)
    return found


OLD = {"loss_max_abs_diff": 4e-4, "grad_norm_max_rel_diff": 1e-6, "param_max_abs_diff": 1e-6}


def test_a_run_of_before_there_were_states_is_still_told() -> None:
    assert verdict_of(OLD | {"passed": True}).badge.state == "equal"
    unmeasured = verdict_of(OLD | {"passed": False})
    assert unmeasured.badge.state == "unmeasured" and unmeasured.badge.passed is False
    assert "run it again" in unmeasured.why and "4.0e-04" in unmeasured.numbers
    assert verdict_of(dict.fromkeys([*OLD, "passed"])).badge.state == "none"
    assert verdict_of({}).badge.state == "none"


def test_whether_it_passed_follows_from_the_state_alone() -> None:
    assert brief(False, "rounding", 7).passed is True and brief(True, "different").passed is False
    assert brief(None, "equal").passed is True and brief(True, "no state").state == "unmeasured"
    assert brief(True, "rounding", 7).title == "≈ Equal until rounding grew (step 7)"


@pytest.mark.parametrize(
    ("state", "short"),
    [
        ("equal", "✔ equal"), ("rounding", "≈ equal"), ("different", "✘ differs"), ("diverged", "! diverged"),
        ("unmeasured", "? not judged"), ("none", ""),
    ],
)  # fmt: skip
def test_a_narrow_column_says_each_state_in_words_that_tell_it(state: str, short: str) -> None:
    assert brief(None, state).short == short


@pytest.mark.parametrize(
    ("run", "begins"),
    [
        ([2.0, 2.0, 2.0], "Closest to their limits: loss"),
        ([2.0, 2.1, 2.0], "Closest to their limits, or furthest beyond: loss"),
    ],
)
def test_numbers_beyond_their_limits_are_not_called_close_to_them(run: list[float], begins: str) -> None:
    assert verdict_of(judged(distances(run, [2.0] * 3))).numbers.startswith(begins)


def test_where_all_are_beyond_their_limits_or_none_was_judged_the_numbers_say_so() -> None:
    far = replace(distances([2.1] * 3, [2.0] * 3), weights=(), grad_norm=Curve((2.0,) * 3, (1.0,) * 3, (1.0,) * 3))
    assert verdict_of(judged(far)).numbers.startswith("Furthest beyond their limits: loss")
    lost = Curve((NAN,) * 3, (NAN,) * 3, (NAN,) * 3)
    nothing = replace(far, loss=lost, grad_norm=lost, param=NAN)
    assert verdict_of(judged(nothing)).numbers == ""
