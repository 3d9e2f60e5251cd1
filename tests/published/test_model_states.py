"""Model states: the ZeRO paper's table 1 and figure 1, and the states of Korthikanti's figure 1."""

from __future__ import annotations

import math

import pytest

from engine.job.job import Job
from engine.job.precision import PRECISIONS
from engine.prediction.formulas import parameters, state_bytes
from tests.published.korthikanti import CONFIGS
from tests.published.zero import FIGURE1, TABLE1

GIB = 2**30
PARAMS = {7.5: (36, 4096, 32), 128: (80, 11520, 90), 1000: (128, 25472, 199)}
"""Layers, width and heads of a GPT of about so many billions of parameters."""


def gigabytes(billions: float, dp: int, zero: int) -> float:
    """What the lab books for each parameter of a GPT of this size on each rank, times the paper's parameters."""
    layers, hidden, heads = PARAMS[billions]
    job = Job.from_options(
        layers=layers, hidden=hidden, heads=heads, seq=2048, vocab=51200, tied=True,
        dp=dp, zero=zero, batch=dp, microbatches=1, precision="mixed16",
    )  # fmt: skip
    return sum(state_bytes(job, 0).values()) / parameters(job) * billions


@pytest.mark.parametrize(("billions", "dp"), TABLE1)
def test_every_row_of_the_zero_paper_s_table_is_what_the_lab_books(billions: float, dp: int) -> None:
    for stage, printed in enumerate(TABLE1[billions, dp], start=1):
        last_digit = 10.0 ** -len(
            str(printed).partition(".")[2]
        )  # the paper turns 41.25 into 41.3, but 257.75 into 257
        assert gigabytes(billions, dp, stage) == pytest.approx(printed, abs=last_digit), stage


def test_its_first_figure_too() -> None:
    found = [gigabytes(7.5, 64, stage) for stage in range(4)]
    assert found == pytest.approx(FIGURE1, rel=0.02)
    assert [round(value, 1) for value in found] == list(FIGURE1)


def test_the_bytes_of_a_parameter_are_those_of_the_two_papers() -> None:
    assert PRECISIONS["mixed16"].state == 2 + 2 + 12  # Rajbhandari et al. 2020, section 3.1
    assert PRECISIONS["mixed18"].state == 18  # Korthikanti et al. 2022, figure 1


@pytest.mark.parametrize("name", CONFIGS)
def test_korthikanti_s_states_are_18_bytes_of_the_blocks_matrices_and_the_lab_adds_what_they_leave_out(
    name: str,
) -> None:
    """The lab's first pipeline rank also holds the token matrix, positions, biases and norms: 2 to 11 % more."""
    config = CONFIGS[name]
    h, t, p = config.hidden, config.tp, config.pp
    matrices = 12 * config.layers * h**2 // (t * p)
    assert 18 * matrices / GIB == config.state_gib
    vectors = config.layers // p * (7 * h // t + 6 * h)  # split: biases of qkv and up; whole: 2 more, and 4 of norms
    ends = math.ceil(51200 / t) * h + 2048 * h + (2 * h if p == 1 else 0)  # tokens, positions, final norm
    exact = 18 * (matrices + vectors + ends)
    assert sum(state_bytes(config.state_job, 0).values()) == exact
    assert 1.015 < exact / GIB / config.state_gib < 1.12
