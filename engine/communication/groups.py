"""Process groups: one for every axis of the mesh, made by the ranks that belong to it."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, Store

from engine.communication.comm import Group
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.units import tied_pp_ranks

TIMEOUT = timedelta(minutes=30)  # as in torch; a supervisor notices trouble in seconds, a starved peer may take long
NCCL_MESSAGE_GROUPS = ("pp_act_down", "pp_act_up", "pp_grad_down", "pp_grad_up")


def meet(rendezvous: str, rank: int, size: int, timeout: timedelta = TIMEOUT) -> None:
    """Joins the other processes of this machine over gloo, as ranks do that a fork server starts.

    rendezvous: a path for all of them, at which no file is yet (`engine.processes.worker_process.MemberContext`)."""
    dist.init_process_group("gloo", store=FileStore(rendezvous, size), rank=rank, world_size=size, timeout=timeout)


def connect(job: Job, rank: int, backend: str, store: Store | None) -> dict[str, Group]:
    """Joins the world through `store` and returns this rank's group on each axis."""
    mesh = mesh_of(job)
    if mesh.size > 1:
        dist.init_process_group(backend, store=store, rank=rank, world_size=mesh.size, timeout=TIMEOUT)
    groups = {axis: _group(axis, mesh.group(axis, rank)) for axis in mesh.axes}
    if backend == "nccl" and mesh.degree("pp") > 1:
        groups |= {name: _group(name, mesh.group("pp", rank)) for name in NCCL_MESSAGE_GROUPS}
    ends = tied_pp_ranks(job)
    if mesh.coordinate(rank).pp in ends:
        pipeline = mesh.group("pp", rank)
        groups["tie"] = _group("tie", [pipeline[pp_rank] for pp_rank in ends])
    return groups


def _group(axis: str, ranks: list[int]) -> Group:
    made = (
        dist.new_group(ranks, timeout=TIMEOUT, use_local_synchronization=True, group_desc=axis)
        if len(ranks) > 1
        else None
    )
    return Group(axis, tuple(ranks), made)
