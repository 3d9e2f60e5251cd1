"""What every row of a step costs on a described cluster."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.cluster.cluster import Cluster
from engine.cluster.collectives import full_bytes, group_cost, message_seconds
from engine.cluster.operations import COPY, MESSAGE
from engine.cluster.roofline import compute_seconds
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.timing import Seconds

COSTS = ("flops", "matmuls", "matmul_bytes", "touched_bytes", "operators", "batched_flops", "batched_bytes")


def costs_on(cluster: Cluster, world_size: int, precision: str = "fp32") -> Callable[[StepRows], Seconds]:
    """The costs of a job of `world_size` ranks on `cluster`, as a function of the rows of a step.

    precision: which peak matrix products run at (see `engine.job.precision`).
    Raises `ValueError` if the cluster is too small.
    """
    cluster.check_size(world_size)

    def costs(rows: StepRows) -> Seconds:
        host, (together, moving) = _host(rows, cluster, world_size), _together(rows, cluster, world_size)
        inside = rows.parent >= 0  # the host has to start collectives inside an action too
        starting = np.bincount(rows.parent[inside], host[inside], len(rows))
        own = _own(rows, cluster, world_size, precision) + starting
        if cluster.shared:  # the very cores that compute move the bytes: nothing is hidden but waiting
            host = host + np.where(inside, 0.0, moving)
        return Seconds(own, together, host)

    return costs


def _host(rows: StepRows, cluster: Cluster, world_size: int) -> NDArray[np.float64]:
    """Seconds that each row's rank takes to get to its next row, where the rank's device has to wait for its host."""
    seconds = np.zeros(max(rows.ranks) + 1)
    for rank in rows.ranks:
        seconds[rank] = cluster.device_of(rank, world_size).host_s / cluster.speed_of(rank, world_size)
    return seconds[rows.rank]


def _own(rows: StepRows, cluster: Cluster, world_size: int, precision: str) -> NDArray[np.float64]:
    """Seconds of each computation on its rank's device; 0 for other rows."""
    columns = np.stack([rows.ints(name) for name in COSTS])
    devices = {rank: cluster.device_of(rank, world_size) for rank in rows.ranks}
    speed = np.ones(max(rows.ranks) + 1)
    for rank in devices:
        speed[rank] = cluster.speed_of(rank, world_size)
    seconds = np.zeros(len(rows))
    for device in {id(device): device for device in devices.values()}.values():
        its_ranks = [rank for rank, other in devices.items() if other is device]
        mine = np.flatnonzero(rows.is_compute & np.isin(rows.rank, its_ranks))
        seconds[mine] = compute_seconds(device, precision, *columns[:, mine]) / speed[rows.rank[mine]]
    return seconds


def _together(rows: StepRows, cluster: Cluster, world_size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(seconds of each collective and message once its members are there, those of them that depend on its size).

    0 for other rows. A copy within a rank goes through its device's memory, which it reads and writes.
    """
    logical = rows.ints("logical_bytes")
    seconds, least = np.zeros(len(rows)), np.zeros(len(rows))
    for op, example, these in rows.alike:
        peers, nbytes = rows.peers_of(example), logical[these]
        if op == COPY:
            rank = int(rows.rank[example])
            device, speed = cluster.device_of(rank, world_size), cluster.speed_of(rank, world_size)
            through = device.memory_bandwidth * device.memory_fraction * speed
            seconds[these] = rows.ints("touched_bytes")[these] / through
        elif op == MESSAGE:
            to = next(peer for peer in peers if peer != rows.rank[example])
            ends = (int(rows.rank[example]), to) if rows.is_send[example] else (to, int(rows.rank[example]))
            seconds[these] = message_seconds(cluster, *ends, nbytes, world_size)
            least[these] = message_seconds(cluster, *ends, 0, world_size)
        else:
            cost = group_cost(cluster, peers, world_size)
            seconds[these] = cost.seconds(op, full_bytes(op, len(peers), nbytes))
            least[these] = cost.seconds(op, 0)
    return seconds, seconds - least
