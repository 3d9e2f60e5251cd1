"""Calibration: what a fit must find again, and one real one of this machine. No absolute time is asserted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.calibration.calibrate import NAME, calibrate, save
from engine.calibration.fitting import NOTHING, fit_device, fit_link, nonnegative_fit
from engine.cluster.cluster import Cluster, Device, Link, load_cluster
from engine.cluster.collectives import group_cost, message_seconds
from engine.cluster.roofline import compute_seconds
from engine.machine import cores
from tests.engine.clusters import cluster

Event = dict[str, Any]


def test_a_link_is_found_again_from_the_times_it_would_cause() -> None:
    link = Link(launch_s=1e-4, latency_s=4e-4, bandwidth=1e9)
    shared = cluster(1, devices=2, inside=link, shared=True, backend="gloo")
    events: list[Event] = []
    for nbytes in (64, 2**20, 2**22):
        for ranks in (2, 4, 8):
            cost = group_cost(shared, tuple(range(ranks)), ranks)
            for op in ("all_reduce", "all_gather"):
                seconds = float(cost.seconds(op, nbytes))
                events.append({"kind": "traffic", "op": op, "ranks": ranks, "bytes": nbytes, "seconds": seconds})
        seconds = float(message_seconds(shared, 0, 1, nbytes))
        events.append({"kind": "traffic", "op": "message", "ranks": 2, "bytes": nbytes, "seconds": seconds})
    found = fit_link(events, 2)
    assert (found.launch_s, found.latency_s, found.bandwidth) == pytest.approx((1e-4, 4e-4, 1e9), rel=1e-3)


def test_where_noise_hides_the_bandwidth_it_is_at_least_what_was_moved() -> None:
    events = [
        {"kind": "traffic", "op": "message", "ranks": 2, "bytes": nbytes, "seconds": seconds}
        for nbytes, seconds in [(64, 2e-3), (2**20, 1e-3), (2**22, 0.5e-3)]
    ]
    assert fit_link(events, 2).bandwidth == pytest.approx(2**22 / 0.5e-3, rel=1e-3)


def test_a_device_is_found_again_from_the_times_it_would_cause() -> None:
    device = Device(
        name="core", flops={"fp32": 5e10, "bf16": 1e11}, achievable=((2 * 64**3, 0.5), (2 * 256**3, 1.0)),
        memory_bytes=10**9, memory_bandwidth=2e10, memory_fraction=0.25, operator_s=2e-5, host_s=9e-5,
    )  # fmt: skip
    dispatch, rates = 1e-5, {("fp32", 64): 2.5e10, ("fp32", 256): 5e10, ("bf16", 256): 1e11}
    events: list[Event] = [{"kind": "product", "dtype": "fp32", "width": NOTHING, "seconds": dispatch}]
    for (dtype, width), rate in rates.items():
        seconds = dispatch + 3 * 2 * width**3 / rate
        events.append({"kind": "product", "dtype": dtype, "width": width, "seconds": seconds})
    events.append({"kind": "stream", "bytes": 10**8, "seconds": 10**8 / 2e10})
    events.append({"kind": "host", "seconds": 4e-5})
    sorts = [(10**6, 10**5, 2 * 10**5, 40), (10**9, 10**7, 4 * 10**7, 50), (10**5, 10**4, 10**5, 2)]
    for flops, dense, touched, operators in sorts:
        row = {"flops": flops, "matmuls": 18, "matmul_bytes": dense, "touched_bytes": touched, "operators": operators}
        row |= {"batched_flops": flops // 10, "batched_bytes": dense // 2}
        seconds = float(compute_seconds(device, "fp32", *([value] for value in row.values()))[0])
        events.append({"kind": "row", **row, "seconds": seconds + 5e-5})
    found = fit_device(events, "core", 10**9)
    assert found.flops == pytest.approx(dict(device.flops), rel=1e-3)
    assert np.array(found.achievable) == pytest.approx(np.array(device.achievable), rel=1e-3)
    assert found.memory_bandwidth == pytest.approx(2e10, rel=1e-3)
    assert (found.memory_fraction, found.operator_s) == pytest.approx((0.25, 2e-5), rel=1e-2)
    assert found.host_s == pytest.approx(4e-5 + 5e-5, rel=1e-2)  # between the rows, and in them besides their operators


def test_a_fit_leaves_out_what_would_be_negative() -> None:
    ones, x = np.ones(4), np.array([1.0, 2.0, 3.0, 4.0])
    assert nonnegative_fit([ones, x], 3 * ones + 2 * x, ones) == pytest.approx([3, 2])
    falling = nonnegative_fit([ones, x], 5 * ones - x, ones)
    assert falling == pytest.approx([2.5, 0])
    assert nonnegative_fit([ones], -ones, ones) == [0]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cluster, Path, list[str]]:
    folder, heard = tmp_path_factory.mktemp("clusters"), list[str]()
    return calibrate(folder, heard.append), folder, heard


def test_this_machine_is_measured_by_real_processes_and_kept(here: tuple[Cluster, Path, list[str]]) -> None:
    found, folder, heard = here
    assert load_cluster(NAME, [folder]) == found
    assert [path.name for path in folder.iterdir()] == ["here.toml"]
    assert (found.devices, found.shared, found.backend) == (cores(), True, "gloo")
    assert any(text.startswith("all_reduce of") for text in heard)
    assert any(text.startswith("a computation of") for text in heard)
    assert "Python between two operations" in heard


def test_what_was_measured_makes_sense(here: tuple[Cluster, Path, list[str]]) -> None:
    found = here[0]
    device = found.device_of(0, 1)
    assert max(fraction for _, fraction in device.achievable) == 1
    assert device.operator_s > 0 and device.host_s > 0
    assert all(math.isfinite(rate) for rate in device.flops.values())
    few, many = (group_cost(found, tuple(range(n)), n).seconds("all_reduce", 10**6) for n in (2, 8))
    assert few < many
    found.check_size(64)


def test_saving_replaces_what_was_there(tmp_path: Path) -> None:
    for name in ("first", "second"):
        save(cluster(1, name=name), tmp_path / "deep" / "here.toml")
        assert load_cluster("here", [tmp_path / "deep"]).name == name
