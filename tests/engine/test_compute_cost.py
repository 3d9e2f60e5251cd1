"""What operators cost, by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine.cluster.roofline import achievable_fraction, compute_seconds
from tests.engine.clusters import DEVICE


def test_large_products_take_their_flops_and_thin_ones_their_bytes() -> None:
    # 10 products of 1e8 FLOPs reach 0.75 of 1e12 FLOP/s; 1e10 bytes at 1e11 bytes/s take longer than the FLOPs
    seconds = compute_seconds(DEVICE, "fp32", [10**9, 10**9], [10, 10], [10**6, 10**10], [10**6, 10**10], [0, 0])
    assert seconds == pytest.approx([1e9 / 0.75e12, 0.1])


def test_attention_s_products_are_bound_by_memory_even_beside_products_that_are_not() -> None:
    # 9e8 FLOPs at 0.75e12 FLOP/s, and 1e8 FLOPs that touch 1e9 bytes, which take 1e9 / 1e11 s
    seconds = compute_seconds(DEVICE, "fp32", [10**9], [10], [10**9 + 10**6], [10**9 + 10**6], [0], [10**8], [10**9])
    assert seconds == pytest.approx([9e8 / 0.75e12 + 1e-2])


def test_other_operators_pass_their_bytes_at_their_share_of_the_bandwidth() -> None:
    assert compute_seconds(DEVICE, "fp32", [0], [0], [0], [10**9], [0]) == pytest.approx([1e9 / 0.5e11])


def test_every_operator_costs_its_launch() -> None:
    assert compute_seconds(DEVICE, "fp32", [0], [0], [0], [0], [7]) == pytest.approx([7e-5])


@pytest.mark.parametrize(("precision", "peak"), [("fp32", 1e12), ("bf16", 4e12), ("mixed16", 4e12), ("mixed18", 4e12)])
def test_mixed_precision_multiplies_in_bf16(precision: str, peak: float) -> None:
    assert compute_seconds(DEVICE, precision, [10**9], [1], [0], [0], [0]) == pytest.approx([1e9 / (0.75 * peak)])


def test_the_fraction_is_linear_in_the_logarithm_and_flat_outside() -> None:
    assert achievable_fraction(DEVICE, [0, 1, 1e6, 1e7, 1e8, 1e20]) == pytest.approx(
        [0.25, 0.25, 0.25, 0.5, 0.75, 0.75]
    )


def test_the_result_has_the_shape_of_the_columns_even_if_empty() -> None:
    column = np.zeros((2, 3), dtype=np.int64)
    assert compute_seconds(DEVICE, "fp32", column, column, column, column, column).shape == (2, 3)
    empty = np.zeros(0, dtype=np.int64)
    assert compute_seconds(DEVICE, "fp32", empty, empty, empty, empty, empty).shape == (0,)


def test_a_precision_that_the_device_does_not_have_is_refused() -> None:
    old = dataclasses.replace(DEVICE, flops={"fp32": 1e12})
    with pytest.raises(ValueError, match="precision=mixed16 is not known of device d, whose peaks are for fp32"):
        compute_seconds(old, "mixed16", [1], [1], [1], [1], [1])
