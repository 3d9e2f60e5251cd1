"""What communication costs: by hand, against published fits, and where one algorithm must beat another."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cluster.cluster import Cluster, SlowLink, load_cluster
from engine.cluster.collectives import COLLECTIVES, full_bytes, group_cost, message_seconds
from engine.cluster.scaled_links import scaled
from engine.communication.collective_bytes import logical_bytes
from tests.engine.clusters import INSIDE, cluster

GB = 10**9


def seconds(made: Cluster, ranks: range, op: str, nbytes: int) -> float:
    return float(group_cost(made, tuple(ranks), max(ranks) + 1).seconds(op, nbytes))


def test_a_ring_in_a_node_by_hand() -> None:
    # launch 10 µs, 1 µs a hop, 100 GB/s, 4 ranks
    one = cluster(1)
    assert seconds(one, range(4), "all_reduce", GB) == pytest.approx(10e-6 + 6 * 1e-6 + 6 / 4 * 0.01)
    assert seconds(one, range(4), "reduce_scatter", GB) == pytest.approx(10e-6 + 3 * 1e-6 + 3 / 4 * 0.01)
    assert seconds(one, range(4), "all_gather", GB) == pytest.approx(10e-6 + 3 * 1e-6 + 3 / 4 * 0.01)
    assert seconds(one, range(4), "all_to_all", GB) == pytest.approx(10e-6 + 3 * 1e-6 + 3 / 4 * 0.01)


def test_algorithms_over_two_nodes_by_hand() -> None:
    # 2 nodes of 4; across: launch 20 µs, 5 µs a hop, 10 GB/s a device, so 40 GB/s a node; inside 100 GB/s
    lines = {line.algorithm: line for line in group_cost(cluster(2), tuple(range(8)), 8).lines["all_reduce"]}
    assert lines["ring"].alpha == pytest.approx(20e-6 + 2 * (6 * 1e-6 + 1 * 5e-6))
    assert lines["ring"].beta == pytest.approx(14 / 8 / 40e9)
    assert lines["tree"].alpha == pytest.approx(20e-6 + 2 * (3 * 1e-6 + 1 * 5e-6))
    assert lines["tree"].beta == pytest.approx(2 / 40e9)
    inside, across = 10e-6 + 3 * 1e-6, 20e-6 + 2 * 5e-6
    assert lines["hierarchical"].alpha == pytest.approx(2 * inside + across)
    assert lines["hierarchical"].beta == pytest.approx(2 * (3 / 4) / 100e9 + 2 * (1 / 2) / 4 / 10e9)


def test_an_all_to_all_is_bound_by_the_slower_kind_of_link() -> None:
    # each of 8 ranks sends S/8 to 4 ranks of the other node at 10 GB/s, and meanwhile S/8 to 3 neighbours at 100 GB/s
    assert seconds(cluster(2), range(8), "all_to_all", GB) == pytest.approx(20e-6 + 3 * 1e-6 + 4 * 5e-6 + 4 / 8 * 0.1)


def test_unequal_members_have_no_hierarchy_and_the_smallest_share_of_adapters() -> None:
    lines = {line.algorithm: line for line in group_cost(cluster(2), tuple(range(6)), 8).lines["all_reduce"]}
    assert set(lines) == {"ring", "tree"}
    assert lines["ring"].beta == pytest.approx(10 / 6 / 20e9)


def test_one_rank_a_node_sends_its_own_share_only() -> None:
    """The data-parallel group beside tensor parallelism inside the nodes."""
    lines = {line.algorithm: line for line in group_cost(cluster(2), (1, 5), 8).lines["all_reduce"]}
    assert set(lines) == {"ring", "tree"}
    assert lines["ring"].beta == pytest.approx(1 / 10e9)


def test_a_ring_is_never_faster_than_the_devices_inside() -> None:
    wide = cluster(2, across=dataclasses.replace(cluster(2).across, bandwidth=90e9))
    ring = group_cost(wide, tuple(range(8)), 8).lines["all_reduce"][0]
    assert ring.beta == pytest.approx(14 / 8 / INSIDE.bandwidth)


@pytest.mark.parametrize(("gpus", "alpha", "bus_bandwidth"), [(8, 77e-6, 227e9), (2, 45e-6, None)])
def test_the_measured_fit_of_an_a100_node_is_reproduced(gpus: int, alpha: float, bus_bandwidth: float | None) -> None:
    """8 A100 on NVSwitch: 77 µs and 227 GB/s of bus bandwidth; 2 of them: 45 µs. Bus bandwidth: 2(n−1)/n·S ÷ time."""
    dgx = load_cluster("a100-dgx")
    assert seconds(dgx, range(gpus), "all_reduce", 0) == pytest.approx(alpha, rel=1e-3)
    if bus_bandwidth:
        large = seconds(dgx, range(gpus), "all_reduce", 10**12)
        assert 2 * (gpus - 1) / gpus * 10**12 / large == pytest.approx(bus_bandwidth, rel=1e-3)


def test_with_the_group_the_bandwidth_term_hardly_grows_and_the_latency_term_grows_linearly() -> None:
    """An all-reduce of a large tensor takes at most twice as long over any number of ranks as over two; that of a
    small one takes as much longer as there are hops."""
    wide = cluster(1, devices=256)
    large = [seconds(wide, range(n), "all_reduce", 10 * GB) for n in (2, 16, 256)]
    assert large[1] / large[0] == pytest.approx(2 * 15 / 16, rel=1e-2)
    assert large[2] / large[1] == pytest.approx(1.06, abs=0.02)
    small = np.array([seconds(wide, range(n), "all_reduce", 8) for n in (2, 65, 129, 193)])
    assert np.diff(small)[1:] == pytest.approx(2 * 64 * INSIDE.latency_s)


def test_hierarchy_wins_where_adapters_are_few_and_the_tensor_large() -> None:
    """2 nodes of 8 A100 with one 100 Gb/s adapter, 12.5 GB/s, for all 8: a flat ring sends 15/16 of the bytes twice
    through it, the hierarchy half of them twice, and NVLink adds 7/8 twice at 227 GB/s."""
    few, group = scaled(load_cluster("a100-dgx"), across_bandwidth=1 / 16), tuple(range(16))
    choice = group_cost(few, group, 16).explain("all_reduce", GB)
    assert choice.algorithm == "hierarchical"
    times_as_long = (2 * 15 / 16 / 12.5) / (2 * 1 / 2 / 12.5 + 2 * 7 / 8 / 227)
    assert choice.alternatives["ring"] / choice.seconds == pytest.approx(times_as_long, rel=0.01)
    assert "spans 2 nodes, so only 1/8 of the bytes" in choice.why
    assert f"a flat ring would take {times_as_long:.2f}"[:-1] in choice.why


def test_hierarchy_loses_where_every_device_has_an_adapter_or_the_tensor_is_small() -> None:
    dgx, group = load_cluster("a100-dgx"), tuple(range(16))
    assert group_cost(dgx, group, 16).explain("all_reduce", GB).algorithm == "ring"
    few = scaled(dgx, across_bandwidth=1 / 16)
    assert group_cost(few, group, 16).explain("all_reduce", 1000).algorithm == "tree"


def test_trees_win_for_small_tensors_over_many_nodes_and_rings_for_large_ones() -> None:
    many = group_cost(load_cluster("a100-dgx"), tuple(range(0, 8 * 64, 8)), 512)
    assert many.explain("all_reduce", 1000).algorithm == "tree"
    assert many.explain("all_reduce", 10**11).algorithm == "ring"


@given(st.integers(0, 10**12))
def test_the_cheapest_algorithm_is_taken_for_every_size(nbytes: int) -> None:
    cost = group_cost(cluster(2), tuple(range(8)), 8)
    choice = cost.explain("all_reduce", nbytes)
    assert choice.seconds <= min(choice.alternatives.values())
    assert cost.seconds("all_reduce", [nbytes, nbytes]) == pytest.approx([choice.seconds] * 2)


def test_a_group_of_one_costs_nothing() -> None:
    alone = group_cost(cluster(1), (2,), 4)
    assert alone.seconds("all_reduce", [1, GB]).tolist() == [0, 0]
    assert alone.explain("all_gather", GB).seconds == 0


def test_a_group_on_a_cluster_too_small_for_the_job_is_refused() -> None:
    with pytest.raises(ValueError, match="needs dp·tp·pp=16 devices, and cluster small has 8"):
        group_cost(cluster(2), (0, 1), 16)


def test_a_slow_link_bounds_the_rings_through_it_and_no_other_group() -> None:
    slow = cluster(2, slow_links=(SlowLink(between="ranks", a=0, b=1, factor=0.1),))
    assert seconds(slow, range(4), "all_reduce", 10 * GB) == pytest.approx(6 / 4 * 10 / 10, rel=1e-3)
    assert seconds(slow, range(4, 8), "all_reduce", 10 * GB) == pytest.approx(6 / 4 * 10 / 100, rel=1e-3)
    around = cluster(2, slow_links=(SlowLink(between="ranks", a=0, b=2, factor=0.1),))
    assert seconds(around, range(4), "all_reduce", GB) == seconds(cluster(2), range(4), "all_reduce", GB)
    assert seconds(around, range(4), "all_to_all", GB) > 5 * seconds(cluster(2), range(4), "all_to_all", GB)


def test_a_slow_link_between_nodes_bounds_the_groups_that_cross_it() -> None:
    slow = cluster(3, slow_links=(SlowLink(between="nodes", a=0, b=1, factor=0.5),))
    assert seconds(slow, range(12), "all_gather", GB) == pytest.approx(
        seconds(scaled(cluster(3), across_bandwidth=0.5), range(12), "all_gather", GB)
    )
    assert seconds(slow, range(4, 12), "all_gather", GB) == seconds(cluster(3), range(4, 12), "all_gather", GB)


def test_messages_by_hand() -> None:
    two = cluster(2, slow_links=(SlowLink(between="ranks", a=2, b=3, factor=0.5),))
    assert message_seconds(two, 0, 1, [0, GB]) == pytest.approx([11e-6, 11e-6 + 0.01])
    assert message_seconds(two, 3, 4, [GB]) == pytest.approx([25e-6 + 0.1])
    assert message_seconds(two, 3, 2, [GB]) == pytest.approx([11e-6 + 0.02])


def test_gloo_carries_out_a_reduce_scatter_as_an_all_reduce() -> None:
    gloo = group_cost(cluster(2, backend="gloo"), tuple(range(8)), 8)
    assert gloo.seconds("reduce_scatter", GB) == gloo.seconds("all_reduce", GB)
    assert {line.algorithm for op in COLLECTIVES for line in gloo.lines[op]} == {"ring", "pairwise"}


def test_ranks_that_share_cores_take_turns_at_sending_too() -> None:
    shared = cluster(1, devices=2, shared=True, backend="gloo")
    alone, crowded = (group_cost(shared, (0, 1), size).seconds("all_reduce", GB) for size in (2, 8))
    assert crowded == pytest.approx(4 * alone)
    assert message_seconds(shared, 0, 1, GB, 8) == pytest.approx(4 * message_seconds(shared, 0, 1, GB, 2))


@given(
    st.sampled_from([*COLLECTIVES, "message"]),
    st.integers(2, 1024),
    st.lists(st.integers(0, 2**40), min_size=1, max_size=5),
)
def test_the_full_size_is_recovered_from_what_each_rank_sends(op: str, n: int, sizes: list[int]) -> None:
    sent = [logical_bytes(op, n, size) for size in sizes]
    found = full_bytes(op, n, sent)
    assert [logical_bytes(op, n, int(size)) for size in found] == sent
    whole = [size * n for size in sizes]  # as tensors that are cut in n parts are
    assert full_bytes(op, n, [logical_bytes(op, n, size) for size in whole]).tolist() == whole
