"""The clusters that ship: complete, sourced, and the toy one as true to GPT-3's trade-offs as it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.cluster.cluster import Cluster, cluster_files, load_cluster
from engine.cluster.collectives import group_cost
from engine.cluster.roofline import compute_seconds

PRESETS = ["a100-dgx", "a100-dgx-800g", "h100-dgx", "mixed", "pcie-box", "toy-2x4", "v100-dgx2"]


def test_these_are_the_clusters_that_ship() -> None:
    assert list(cluster_files()) == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_bears_the_name_of_its_file_and_says_where_its_figures_are_from(name: str) -> None:
    preset = load_cluster(name)
    assert preset.name == name
    assert preset.description
    assert preset.across.source
    for group in preset.nodes:
        assert group.device.source
        assert group.inside.source


@pytest.mark.parametrize(
    ("name", "fp32", "bf16", "gigabytes", "bandwidth"),
    [
        ("a100-dgx", 19.5e12, 312e12, 80, 2.039e12),  # NVIDIA's datasheets
        ("h100-dgx", 67e12, 989e12, 80, 3.35e12),
        ("v100-dgx2", 15.7e12, 125e12, 32, 0.9e12),
    ],
)
def test_devices_are_those_of_the_datasheets(
    name: str, fp32: float, bf16: float, gigabytes: int, bandwidth: float
) -> None:
    device = load_cluster(name).nodes[0].device
    assert device.flops == {"fp32": fp32, "bf16": bf16}
    assert (device.memory_bytes, device.memory_bandwidth) == (gigabytes * 10**9, bandwidth)


def test_the_mixed_cluster_has_two_kinds_of_devices_and_the_slower_ones_come_last() -> None:
    mixed = load_cluster("mixed")
    first, last = mixed.device_of(0, 16), mixed.device_of(15, 16)
    assert first.flops["bf16"] > 2 * last.flops["bf16"]


def block(cluster: Cluster, precision: str, tokens: int, hidden: int, seq: int, size: int) -> tuple[float, float]:
    """Seconds a rank computes, and talks, in one transformer block with tensor degree 4, forward and backward.

    6 matrix products forward, 12 backward: 72·n·h²·(1 + s/6h) FLOPs (Narayanan et al. 2021, section 5.1); 4 all-reduces
    of [s, b, h] (Shoeybi et al. 2019, section 3). size: bytes of a number.
    """
    flops = 72 * tokens * hidden**2 * (1 + seq / (6 * hidden)) / 4
    compute = compute_seconds(cluster.nodes[0].device, precision, [flops], [18], [0], [0], [0])[0]
    return float(compute), 4 * float(group_cost(cluster, (0, 1, 2, 3), 8).seconds("all_reduce", tokens * hidden * size))


def test_the_toy_cluster_treats_the_default_model_as_an_a100_node_treats_gpt3() -> None:
    real = block(load_cluster("a100-dgx"), "bf16", 2048, 12288, 2048, 2)
    toy = block(load_cluster("toy-2x4"), "fp32", 2 * 64, 64, 64, 4)
    assert toy == pytest.approx(real, rel=1e-2)
    assert toy[1] / toy[0] == pytest.approx(real[1] / real[0], rel=1e-2)


def test_between_nodes_the_toy_cluster_is_slower_than_inside_by_as_much_as_the_real_one() -> None:
    real, toy = load_cluster("a100-dgx"), load_cluster("toy-2x4")
    slower = [c.nodes[0].inside.bandwidth / c.across.bandwidth for c in (real, toy)]
    assert slower[1] == pytest.approx(slower[0], rel=1e-2)


def test_hardware_is_described_without_loading_torch() -> None:
    code = "import sys, engine.calibration.calibrate, engine.cluster.collectives; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
