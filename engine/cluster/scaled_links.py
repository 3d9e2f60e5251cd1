"""What if the links were faster or slower? A cluster with its links changed, for sliders and comparisons."""

from __future__ import annotations

import dataclasses
import math

from engine.cluster.cluster import Cluster, Link


def scaled(
    cluster: Cluster,
    *,
    inside_bandwidth: float = 1.0,
    across_bandwidth: float = 1.0,
    inside_latency: float = 1.0,
    across_latency: float = 1.0,
) -> Cluster:
    """The cluster with its links changed by factors. A latency factor scales the launch and every hop.

    Raises `ValueError` if a factor makes no sense.
    """
    factors = {
        "inside_bandwidth": inside_bandwidth, "across_bandwidth": across_bandwidth,
        "inside_latency": inside_latency, "across_latency": across_latency,
    }  # fmt: skip
    for name, factor in factors.items():
        if not (factor > 0 and math.isfinite(factor)):
            raise ValueError(f"{name}={factor} is not valid: use a finite number above 0, where 1 changes nothing.")
    nodes = tuple(
        dataclasses.replace(group, inside=_scaled_link(group.inside, inside_bandwidth, inside_latency))
        for group in cluster.nodes
    )
    across = _scaled_link(cluster.across, across_bandwidth, across_latency)
    return dataclasses.replace(cluster, nodes=nodes, across=across)


def _scaled_link(link: Link, bandwidth: float, latency: float) -> Link:
    return dataclasses.replace(
        link,
        launch_s=link.launch_s * latency,
        latency_s=link.latency_s * latency,
        bandwidth=link.bandwidth * bandwidth,
    )
