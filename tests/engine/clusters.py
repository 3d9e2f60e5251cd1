"""Small clusters for the tests, with round numbers to calculate with by hand."""

from __future__ import annotations

from typing import Any

from engine.cluster.cluster import Cluster, Device, Link, Nodes

DEVICE = Device(
    name="d",
    flops={"fp32": 1e12, "bf16": 4e12},
    achievable=((1e6, 0.25), (1e8, 0.75)),
    memory_bytes=10**9,
    memory_bandwidth=1e11,
    memory_fraction=0.5,
    operator_s=1e-5,
)
INSIDE = Link(launch_s=10e-6, latency_s=1e-6, bandwidth=100e9)
ACROSS = Link(launch_s=20e-6, latency_s=5e-6, bandwidth=10e9)


def cluster(*counts: int, devices: int = 4, inside: Link = INSIDE, **changes: Any) -> Cluster:
    """Groups of `counts` nodes with 4 devices each."""
    nodes = tuple(Nodes(count=count, devices=devices, device=DEVICE, inside=inside) for count in counts)
    return Cluster(**({"name": "small", "nodes": nodes, "across": ACROSS} | changes))
