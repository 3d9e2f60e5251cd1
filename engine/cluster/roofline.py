"""What operators cost on a device: the roofline (Williams, Waterman, Patterson 2009), per recorded operation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.cluster.cluster import Device, Precision

Floats = NDArray[np.float64]


def compute_seconds(
    device: Device,
    precision: str,
    flops: ArrayLike,
    matmuls: ArrayLike,
    matmul_bytes: ArrayLike,
    touched_bytes: ArrayLike,
    operators: ArrayLike,
    batched_flops: ArrayLike = 0,
    batched_bytes: ArrayLike = 0,
) -> Floats:
    """Seconds of each recorded operation on `device` at full speed; the caller divides by `Cluster.speed_of`.

    The arrays are the columns of `engine.recording.tables.Op`, all of one shape, which the result has too. Matrix
    products take what is longer: flops ÷ (peak × the fraction reached by products of their mean size), or their bytes ÷
    memory bandwidth. Attention's batched products are held against that roofline by themselves: they do so few FLOPs a
    byte that memory bounds them, which the others would hide. The other operators take their bytes ÷ (bandwidth ×
    memory_fraction). Every operator adds operator_s. precision: "fp32", or "bf16", "mixed16", "mixed18", which multiply
    in bf16. Raises `ValueError` if the device's peak in that precision is not known.
    """
    work, products = np.asarray(flops, dtype=np.float64), np.asarray(matmuls, dtype=np.float64)
    dense, touched = np.asarray(matmul_bytes, dtype=np.float64), np.asarray(touched_bytes, dtype=np.float64)
    rate = peak_flops(device, precision) * achievable_fraction(device, work / np.maximum(products, 1))
    batched, batched_dense = np.asarray(batched_flops), np.asarray(batched_bytes)
    multiply = np.maximum((work - batched) / rate, (dense - batched_dense) / device.memory_bandwidth)
    multiply = multiply + np.maximum(batched / rate, batched_dense / device.memory_bandwidth)
    other = (touched - dense) / (device.memory_bandwidth * device.memory_fraction)
    return np.asarray(multiply + other + np.asarray(operators) * device.operator_s, dtype=np.float64)


def peak_flops(device: Device, precision: str) -> float:
    """Peak FLOP/s of matrix products in `precision`."""
    key: Precision = "fp32" if precision == "fp32" else "bf16"
    if key not in device.flops:
        known = ", ".join(device.flops)
        raise ValueError(f"precision={precision} is not known of device {device.name}, whose peaks are for {known}.")
    return device.flops[key]


def achievable_fraction(device: Device, flops: ArrayLike) -> Floats:
    """Fraction of the peak that one matrix product of so many FLOPs reaches: linear in log10, flat outside."""
    sizes, fractions = np.array(device.achievable).T
    reached = np.interp(np.log10(np.maximum(flops, 1.0)), np.log10(sizes), fractions)
    return np.asarray(reached, dtype=np.float64)
