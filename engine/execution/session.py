"""From a job to the processes that run it. Knows no torch, so that a client can prepare while torch is loading."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.execution.reference import kept_floor, usable
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.job.registry import plugged_in
from engine.processes.launch import Member
from engine.program.program import Program
from engine.versions import version

PRELOAD = ("engine.execution.fork_server_rank",)
"""What a fork server loads before it forks ranks; see `engine.processes.launch.launch`."""


@dataclass(frozen=True)
class Backend:
    """How the ranks talk and where they compute; `reason` says why, for the learner."""

    name: str
    device: str
    reason: str


@lru_cache(maxsize=1)
def usable_gpus() -> int:
    """GPUs that this torch can use here, without making a CUDA context or importing torch."""
    if version("torch").endswith("+cpu"):
        return 0
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    present = sum(line.startswith("GPU ") for line in listing.stdout.splitlines())
    return present if allowed is None else min(present, len([name for name in allowed.split(",") if name.strip()]))


def choose_backend(world_size: int, gpus: int) -> Backend:
    """NCCL when every rank has a GPU of its own, else gloo on the CPU."""
    if gpus >= world_size:
        reason = f"each of the {world_size} ranks has a GPU of its own"
        return Backend("nccl", "cuda", reason)
    if gpus:
        reason = f"{world_size} ranks cannot share {gpus} GPUs under NCCL, so all compute on the CPU"
        return Backend("gloo", "cpu", reason)
    return Backend("gloo", "cpu", "there is no GPU here that this torch can use")


def members(
    job: Job,
    run_dir: Path,
    *,
    backend: Backend,
    reference: Path | None,
    program: Program | None = None,
    floor: bool = True,
) -> list[Member]:
    """The processes of a run: a rank for each place of the mesh and, unless they are kept already, the reference and
    what finds its rounding floor.

    reference: the file of the one-process run to compare with (`engine.execution.reference`), None to compare with
    nothing. program: what the ranks execute instead of the job's compiled program; it must have been checked. floor:
    whether anybody asks for it.
    """
    mesh, kept = mesh_of(job), reference is not None and usable(reference)
    common = {
        "job": job,
        "run_dir": str(run_dir),
        "backend": backend.name,
        "reference": str(reference) if reference else None,
        "reference_kept": kept,
        "plugins": plugged_in(),
    }
    ranks = [
        Member(
            f"rank {rank} ({mesh.coordinate(rank)})",
            "engine.execution.fork_server_rank:run_member",
            common | {"rank": rank, "program": program,
                      "device": f"cuda:{rank}" if backend.device == "cuda" else "cpu"},
        )
        for rank in range(mesh.size)
    ]  # fmt: skip
    if reference is None:
        return ranks
    alone = [] if kept else [_alone("reference", "run_reference", common)]
    return ranks + alone + ([] if not floor or kept_floor(reference) else [_alone("floor", "run_floor", common)])


def _alone(name: str, function: str, payload: dict[str, Any]) -> Member:
    """A process that trains the job alone, beside the ranks."""
    target = f"engine.execution.fork_server_rank:{function}"
    return Member(name, target, payload | {"device": "cpu"}, group=name)
