"""Described hardware: where ranks sit, what is refused and how, and files that say exactly what was meant."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cluster.cluster import Cluster, Device, Link, Nodes, SlowLink, checked, cluster_files, load_cluster
from engine.cluster.scaled_links import scaled
from tests.engine.clusters import DEVICE, INSIDE, cluster

POSITIVE = st.floats(min_value=1e-300, max_value=1e300)
SHARE = st.floats(min_value=1e-6, max_value=1)
LINKS = st.builds(Link, launch_s=st.floats(0, 1), latency_s=st.floats(0, 1), bandwidth=POSITIVE, source=st.text())
DEVICES = st.builds(
    Device,
    name=st.text(min_size=1),
    flops=st.dictionaries(st.sampled_from(["fp32", "bf16"]), POSITIVE, min_size=1),
    achievable=st.lists(st.tuples(POSITIVE, SHARE), min_size=1, max_size=4, unique_by=lambda p: p[0]).map(
        lambda points: tuple(sorted(points))
    ),
    memory_bytes=st.integers(1, 2**62),
    memory_bandwidth=POSITIVE,
    memory_fraction=SHARE,
    operator_s=st.floats(0, 1),
    host_s=st.floats(0, 1),
    source=st.text(),
)
GROUPS = st.builds(Nodes, count=st.integers(1, 9), devices=st.integers(1, 9), device=DEVICES, inside=LINKS)
SLOW = st.builds(
    SlowLink, between=st.sampled_from(["ranks", "nodes"]), a=st.integers(0, 3), b=st.integers(4, 9), factor=SHARE
)
CLUSTERS = st.builds(
    Cluster,
    name=st.from_regex(r"[a-z0-9][a-z0-9 .-]{0,20}", fullmatch=True),
    description=st.text(),
    nodes=st.lists(GROUPS, min_size=1, max_size=3).map(tuple),
    across=LINKS,
    backend=st.sampled_from(["nccl", "gloo"]),
    slow_ranks=st.dictionaries(st.integers(0, 99), POSITIVE, max_size=3),
    slow_links=st.lists(SLOW, max_size=3).map(tuple),
)


@given(CLUSTERS)
@settings(deadline=None)
def test_a_cluster_written_and_read_back_is_the_same(tmp_path_factory: pytest.TempPathFactory, made: Cluster) -> None:
    path = tmp_path_factory.mktemp("clusters") / "made.toml"
    path.write_text(made.to_toml(), encoding="utf-8")
    assert load_cluster(path) == made
    assert hash(load_cluster(path)) == hash(made)


def test_ranks_fill_nodes_in_order_over_groups_of_different_nodes() -> None:
    slower = dataclasses.replace(DEVICE, name="slower")
    nodes = (
        Nodes(count=2, devices=2, device=DEVICE, inside=INSIDE),
        Nodes(count=1, devices=3, device=slower, inside=INSIDE),
    )
    mixed = checked(dataclasses.replace(cluster(1), nodes=nodes))
    assert mixed.devices == 7
    assert [mixed.node_of(rank) for rank in range(7)] == [0, 0, 1, 1, 2, 2, 2]
    assert [mixed.device_of(rank, 7).name for rank in range(7)] == ["d"] * 4 + ["slower"] * 3


def test_nodes_without_a_count_are_as_many_as_the_job_needs() -> None:
    endless = cluster(0)
    endless.check_size(10_000)
    assert endless.devices is None
    assert endless.node_of(9_999) == 2499


def test_a_plan_that_needs_more_devices_than_there_are_is_refused() -> None:
    cluster(2).check_size(8)
    with pytest.raises(ValueError, match=r"needs dp·tp·pp=9 devices, and cluster small has 8: use at most 8 ranks"):
        cluster(2).check_size(9)


def test_ranks_of_a_shared_machine_take_turns() -> None:
    shared = checked(cluster(1, devices=2, shared=True, slow_ranks={1: 0.5}))
    shared.check_size(5)
    assert [shared.ranks_on_device(rank, 5) for rank in range(5)] == [3, 2, 3, 2, 3]
    assert [shared.speed_of(rank, 5) for rank in range(5)] == [1 / 3, 1 / 4, 1 / 3, 1 / 2, 1 / 3]
    assert {shared.node_of(rank) for rank in range(5)} == {0}


def test_a_slow_rank_is_slow_and_the_others_are_not() -> None:
    assert [cluster(1, slow_ranks={2: 0.5}).speed_of(rank, 4) for rank in range(4)] == [1, 1, 0.5, 1]


def test_scaling_changes_the_links_asked_for_and_nothing_else() -> None:
    small = cluster(2)
    fast = scaled(small, across_bandwidth=4, inside_latency=0.5)
    assert fast.across == dataclasses.replace(small.across, bandwidth=40e9)
    assert fast.nodes[0].inside == Link(launch_s=5e-6, latency_s=0.5e-6, bandwidth=100e9)
    assert scaled(small) == small


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["inside_bandwidth", "across_bandwidth", "inside_latency", "across_latency"])
def test_a_slider_refuses_factors_that_mean_nothing(name: str, factor: float) -> None:
    with pytest.raises(ValueError, match=rf"^{name}={factor} is not valid"):
        scaled(cluster(2), **{name: factor})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"memory_bandwidth": -1.0}, r"nodes\.0\.device\.memory_bandwidth=-1.0 is not valid: use a number above 0"),
        ({"memory_bandwidth": math.nan}, r"memory_bandwidth=nan is not valid: use a finite number"),
        ({"memory_bandwidth": math.inf}, r"memory_bandwidth=inf is not valid: use a finite number"),
        ({"memory_fraction": 1.5}, r"memory_fraction=1.5 is not valid: use a number of at most 1"),
        ({"memory_bytes": 0}, r"memory_bytes=0 is not valid: use a number above 0"),
        ({"memory_bytes": "much"}, r"memory_bytes='much' is not valid: use a whole number"),
        ({"flops": {"fp32": 0.0}}, r"flops\.fp32=0.0 is not valid: use a number above 0"),
        ({"flops": {"fp8": 1.0}}, r"flops\.fp8='fp8' is not valid: use fp32 or bf16"),
        ({"flops": {}}, r"flops={} is not valid: use at least 1"),
        ({"operator_s": -1.0}, r"operator_s=-1.0 is not valid: use a number of at least 0"),
        ({"achievable": ((1e6, 0.5), (1e5, 0.6))}, r"achievable is not valid: its points must come in the order"),
    ],
)
def test_a_device_that_makes_no_sense_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], sentence: str
) -> None:
    node = Nodes(count=1, devices=4, device=dataclasses.replace(DEVICE, **change), inside=INSIDE)
    with pytest.raises(ValueError, match=sentence) as refusal:
        checked(dataclasses.replace(cluster(1), nodes=(node,)))
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (cluster(1, slow_ranks={3: 0.0}), r"slow_ranks\.3=0.0 is not valid: use a number above 0"),
        (cluster(1, slow_links=(SlowLink(between="ranks", a=0, b=1, factor=0.0),)), r"factor=0.0 is not valid"),
        (cluster(1, slow_links=(SlowLink(between="nodes", a=1, b=1, factor=0.5),)), r"joins nodes 1 and 1"),
        (cluster(2, shared=True), r"shared=true is not valid for several nodes"),
        (cluster(0, 1), r"nodes\.count=0 \(as many as needed\) is not valid beside other nodes"),
        (cluster(), r"nodes=\(\) is not valid: use at least 1 of them"),
        (cluster(1, devices=0), r"devices=0 is not valid: use a number above 0"),
    ],
)
def test_a_cluster_that_makes_no_sense_is_refused(made: Cluster, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        checked(made)


def test_files_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    good = cluster(1).to_toml()
    for text, sentence in [
        ("name = ", "is not TOML"),
        ('name = "x"', "nodes is missing"),
        (good.replace("latency_s", "latency", 1), "is missing|is not a field that a cluster has"),
        ("colour = 1\n" + good, "colour is not a field that a cluster has"),
    ]:
        (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=sentence):
            load_cluster(tmp_path / "bad.toml")
    with pytest.raises(ValueError, match=r"gone\.toml cannot be read: No such file"):
        load_cluster(tmp_path / "gone.toml")


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match=r"no cluster called 'a100_dgx': did you mean a100-dgx\? .*toy-2x4"):
        load_cluster("a100_dgx")
    with pytest.raises(ValueError, match=r"no cluster called 'zzz': use the path of a \.toml file, or one of"):
        load_cluster("zzz")


def test_a_cluster_of_the_users_own_is_found_by_name_and_comes_first(tmp_path: Path) -> None:
    (tmp_path / "here.toml").write_text(cluster(1, name="here").to_toml(), encoding="utf-8")
    (tmp_path / "mixed.toml").write_text(cluster(1, name="mine").to_toml(), encoding="utf-8")
    assert load_cluster("here", [tmp_path]).name == "here"
    assert load_cluster("mixed", [tmp_path]).name == "mine"
    assert "here" not in cluster_files()
