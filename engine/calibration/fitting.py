"""The device and the link that explain measured times best: least squares on relative errors, nothing negative.

An event is what `engine.calibration.worker` emits: its kind, what was done, and the seconds it took.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.cluster.cluster import Device, Link, Precision
from engine.cluster.roofline import achievable_fraction, compute_seconds
from engine.communication.collective_bytes import logical_bytes

Event = dict[str, Any]
NOTHING = 8  # width of a linear layer so small that its time is dispatch alone
SOURCE = "measured on this machine by lab calibrate"


def fit_device(events: Sequence[Event], name: str, memory_bytes: int) -> Device:
    """One core, from events of the kinds "product", "stream", "row" and "host".

    Peaks and achievable fractions come from single matrix products, the bandwidth from streaming through memory. Given
    these, what an operator costs besides, what a row costs besides, and how fast operators other than products pass
    through memory, are the three that explain the times of the engine's rows best. What the host takes between two rows
    was timed by itself.
    """
    rates = {width: rate for dtype, width, rate in _product_rates(events) if dtype == "fp32"}
    peak = max(rates.values())
    stream = statistics.median(e["bytes"] / e["seconds"] for e in events if e["kind"] == "stream")
    device = Device(
        name=name,
        flops={"fp32": _tidy(peak)},
        achievable=tuple((2.0 * width**3, _tidy(rate / peak)) for width, rate in sorted(rates.items())),
        memory_bytes=memory_bytes,
        memory_bandwidth=_tidy(stream),
        memory_fraction=1.0,
        source=SOURCE,
    )
    halves = {
        2.0 * width**3: rate / float(achievable_fraction(device, 2.0 * width**3))
        for dtype, width, rate in _product_rates(events)
        if dtype == "bf16"
    }
    flops: dict[Precision, float] = {"fp32": device.flops["fp32"], "bf16": _tidy(max(halves.values()))}
    between = statistics.median(e["seconds"] for e in events if e["kind"] == "host")
    return _fit_rows(dataclasses.replace(device, flops=flops), [e for e in events if e["kind"] == "row"], between)


def _product_rates(events: Sequence[Event]) -> list[tuple[str, int, float]]:
    """(dtype, width, FLOP/s) of linear layers, which are three matrix products each; dispatch excluded."""
    times: dict[tuple[str, int], list[float]] = {}
    for e in events:
        if e["kind"] == "product":
            times.setdefault((e["dtype"], e["width"]), []).append(e["seconds"])
    dispatch = statistics.median(times["fp32", NOTHING])
    rates = []
    for (dtype, width), seconds in times.items():
        if width > NOTHING:
            whole = statistics.median(seconds)
            rates.append(
                (dtype, width, 3 * 2 * width**3 / max(whole - dispatch, whole / 5))
            )  # noise must not eat it all
    return rates


def _fit_rows(device: Device, rows: Sequence[Event], between: float) -> Device:
    """The device with operator_s, host_s, memory_fraction and, if rows pass even faster, memory_bandwidth set.

    between: seconds of the host between two rows; what a row takes besides its operators is the host's as well.
    """
    column = {key: np.array([e[key] for e in rows], dtype=np.float64) for key in rows[0] if key != "kind"}
    other = column["touched_bytes"] - column["matmul_bytes"]
    dense, batched = column["matmul_bytes"], (column["batched_flops"], column["batched_bytes"])
    products = compute_seconds(device, "fp32", column["flops"], column["matmuls"], dense, dense, 0, *batched)
    rest = column["seconds"] - products
    columns = [column["operators"], np.ones(len(rows)), other]
    operator_s, row_s, pace = nonnegative_fit(columns, rest, column["seconds"])
    bandwidth = max(device.memory_bandwidth, 1 / pace) if pace else device.memory_bandwidth
    return dataclasses.replace(
        device,
        operator_s=_tidy(operator_s),
        host_s=_tidy(row_s + between),
        memory_bandwidth=_tidy(bandwidth),
        memory_fraction=min(1.0, _tidy(1 / pace / bandwidth)) if pace else 1.0,
    )


def fit_link(events: Sequence[Event], cores: int) -> Link:
    """The link between ranks that share `cores` cores, from events of the kind "traffic".

    Each took turns · (launch + hops · latency + bytes sent / bandwidth), where turns is how many ranks shared a core.
    """
    traffic = [e for e in events if e["kind"] == "traffic"]
    turns = np.array([-(-e["ranks"] // cores) for e in traffic], dtype=np.float64)
    hops = np.array([_hops(e["op"], e["ranks"]) for e in traffic], dtype=np.float64)
    sent = np.array([logical_bytes(e["op"], e["ranks"], e["bytes"]) for e in traffic], dtype=np.float64)
    seconds = np.array([e["seconds"] for e in traffic])
    launch_s, latency_s, pace = nonnegative_fit([turns, turns * hops, turns * sent], seconds, seconds)
    if not pace:  # noise hides it: then at least what the fastest of them moved
        pace = float((seconds / (turns * sent)).min())
    return Link(launch_s=_tidy(launch_s), latency_s=_tidy(latency_s), bandwidth=_tidy(1 / pace), source=SOURCE)


def _hops(op: str, ranks: int) -> int:
    return {"all_reduce": 2 * (ranks - 1), "all_gather": ranks - 1, "message": 1}[op]


def nonnegative_fit(columns: Sequence[ArrayLike], target: ArrayLike, scale: ArrayLike) -> list[float]:
    """Factors ≥ 0 of the columns whose sum comes closest to `target`, errors measured as shares of `scale`.

    columns: k arrays [n]; target, scale: [n]. The best of all fits that leave some columns out and have no negative
    factor; k is small.
    """
    weights = 1 / np.asarray(scale, dtype=np.float64)
    matrix = np.array(columns, dtype=np.float64).T * weights[:, None]
    goal = np.asarray(target, dtype=np.float64) * weights
    best: tuple[float, NDArray[np.float64]] = (float(goal @ goal), np.zeros(matrix.shape[1]))
    for size in range(1, matrix.shape[1] + 1):
        for chosen in itertools.combinations(range(matrix.shape[1]), size):
            part = matrix[:, chosen]
            norms = np.linalg.norm(part, axis=0)  # columns differ by many powers of ten
            found = np.linalg.lstsq(part / norms, goal, rcond=None)[0] / norms
            error = part @ found - goal
            if (found >= 0).all() and float(error @ error) < best[0]:
                factors = np.zeros(matrix.shape[1])
                factors[list(chosen)] = found
                best = (float(error @ error), factors)
    return [float(factor) for factor in best[1]]


def _tidy(value: float) -> float:
    """Four digits: more would be noise."""
    return float(f"{value:.4g}")
