"""What every row of a step costs on a described cluster."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.cluster import Cluster
from engine.collectives import full_bytes, group_cost, message_seconds
from engine.compute_cost import compute_seconds
from engine.rows import StepRows
from engine.timing import Seconds

COSTS = ("flops", "matmuls", "matmul_bytes", "touched_bytes", "operators", "batched_flops", "batched_bytes")


def costs_on(cluster: Cluster, world_size: int, precision: str = "fp32") -> Callable[[StepRows], Seconds]:
    """The costs of a job of `world_size` ranks on `cluster`, as a function of the rows of a step.

    precision: which peak matrix products run at (see `engine.precision`).
    Raises `ValueError` if the cluster is too small.
    """
    cluster.check_size(world_size)
    return lambda rows: Seconds(
        _own(rows, cluster, world_size, precision),
        _together(rows, cluster, world_size),
        _host(rows, cluster, world_size),
    )


def _host(rows: StepRows, cluster: Cluster, world_size: int) -> NDArray[np.float64]:
    """Seconds that each row's rank takes to get to its next row, where the rank's device has to wait for its host."""
    seconds = np.zeros(int(rows.ranks.max()) + 1)
    for rank in rows.ranks.tolist():
        seconds[rank] = cluster.device_of(rank, world_size).host_s / cluster.speed_of(rank, world_size)
    return seconds[rows.rank]


def _own(rows: StepRows, cluster: Cluster, world_size: int, precision: str) -> NDArray[np.float64]:
    """Seconds of each computation on its rank's device; 0 for other rows."""
    columns = np.stack([rows.ints(name) for name in COSTS])
    devices = {rank: cluster.device_of(rank, world_size) for rank in rows.ranks.tolist()}
    speed = np.ones(int(rows.ranks.max()) + 1)
    for rank in devices:
        speed[rank] = cluster.speed_of(rank, world_size)
    seconds = np.zeros(len(rows))
    for device in {id(device): device for device in devices.values()}.values():
        its_ranks = [rank for rank, other in devices.items() if other is device]
        mine = np.flatnonzero(rows.is_compute & np.isin(rows.rank, its_ranks))
        seconds[mine] = compute_seconds(device, precision, *columns[:, mine]) / speed[rows.rank[mine]]
    return seconds


def _together(rows: StepRows, cluster: Cluster, world_size: int) -> NDArray[np.float64]:
    """Seconds of each collective and message once its members are there; 0 for other rows."""
    logical = rows.ints("logical_bytes")
    seconds = np.zeros(len(rows))
    for op, example, these in rows.alike:
        peers, nbytes = rows.peers_of(example), logical[these]
        if op == "message":
            to = next(peer for peer in peers if peer != rows.rank[example])
            ends = (int(rows.rank[example]), to) if rows.is_send[example] else (to, int(rows.rank[example]))
            seconds[these] = message_seconds(cluster, *ends, nbytes, world_size)
        else:
            cost = group_cost(cluster, peers, world_size)
            seconds[these] = cost.seconds(op, full_bytes(op, len(peers), nbytes))
    return seconds
