"""The surroundings that the fork server gives a rank, and the entries of its members; see `engine.execution.session`.

A member's payload holds job, run_dir, backend, device, reference (the file of the one-process run, or None),
reference_kept (whether it was there before the run) and plugins (modules to import first), a rank's also rank and
program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import FileStore, Store

from engine.execution.one_process import await_reference, train_alone, train_in_another_order
from engine.execution.rank_context import Reference
from engine.execution.worker import run_rank
from engine.job.job import Job
from engine.job.registry import plug_in
from engine.processes.status.board import StatusSlot
from engine.processes.worker_process import MemberContext
from engine.program.program import Program


def run_member(member: MemberContext) -> None:
    """Entry of each rank of a job."""
    _plug_in(member)
    run_rank(ForkServerRank(member))


def run_reference(member: MemberContext) -> None:
    """Entry of the process that trains the same job alone."""
    _plug_in(member)
    train_alone(member.payload["job"], Path(member.payload["reference"]), member.status, member.emit)


def run_floor(member: MemberContext) -> None:
    """Entry of the process that finds how far rounding alone gets from the reference."""
    _plug_in(member)
    path, kept = Path(member.payload["reference"]), member.payload["reference_kept"]
    train_in_another_order(member.payload["job"], path, kept, member.status, member.emit)


def _plug_in(member: MemberContext) -> None:
    for module in member.payload["plugins"]:
        plug_in(module)


@dataclass(frozen=True)
class ForkServerRank:
    """A `RankContext` on one machine, whose ranks share a clock and a disk."""

    member: MemberContext
    clock_offset_ns: int = 0

    @property
    def job(self) -> Job:
        job: Job = self.member.payload["job"]
        return job

    @property
    def rank(self) -> int:
        return int(self.member.payload["rank"])

    @property
    def world_size(self) -> int:
        return self.job.world_size  # the session starts as many

    @property
    def program(self) -> Program | None:
        program: Program | None = self.member.payload["program"]
        return program

    @property
    def backend(self) -> str:
        return str(self.member.payload["backend"])

    @property
    def device(self) -> str:
        return str(self.member.payload["device"])

    @cached_property
    def store(self) -> Store:
        return FileStore(self.member.rendezvous, self.world_size)

    @property
    def run_dir(self) -> Path:
        return Path(self.member.payload["run_dir"])

    @property
    def status(self) -> StatusSlot:
        return self.member.status

    @property
    def compares(self) -> bool:
        return self.member.payload["reference"] is not None

    @property
    def emit(self) -> Callable[[dict[str, Any]], None]:
        return self.member.emit

    def reference(self) -> Reference:
        """Blocks until the one-process run has written what it found."""
        return await_reference(Path(self.member.payload["reference"]), self.member.payload["reference_kept"])
