"""A rank's surroundings: all that a rank gets from whoever started it, so that it is the same rank wherever it runs.

The fork server's (`engine.execution.fork_server_rank`) come from the launcher's request. Those of a cluster's launcher
come from the environment: RANK, WORLD_SIZE, LOCAL_RANK (its device) and MASTER_ADDR (its store).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from torch._C._distributed_c10d import Store

from engine.job.job import Job
from engine.program.program import Program

Reference = dict[str, Any]
"""What the one-process run found: "losses" and "grad_norms" by step, "moved" (whether any weight did), "weights" by
name after the last step, and "samples" (`engine.execution.weight_samples`), {} for one that was made elsewhere."""


class RankStatus(Protocol):
    """Where a rank notes what it is doing; `engine.processes.status.board.StatusSlot` is one."""

    def action(self, text: bytes) -> None:
        """A new action begins; `text` is UTF-8."""

    def waiting(self) -> None:
        """The rank waits in communication."""

    def awaiting(self) -> None:
        """The rank waits for the one-process run."""

    def computing(self) -> None:
        """The rank waits no longer."""

    def writing(self) -> None:
        """The rank writes its recording to the disk."""

    def step(self, number: int) -> None:
        """Step `number`, counted from 0, begins."""


class RankContext(Protocol):
    """rank, world_size: its place among all ranks of the job, and how many were started. program: what it executes,
    None for the job's own. backend: "gloo" or "nccl". device: of this machine, "cpu" or "cuda:3" by its place there.
    store: where the ranks find each other; None for one alone. run_dir: where its rows go.
    clock_offset_ns: what its clock lacks to that of rank 0, for ranks of several machines.
    compares: whether there will be a one-process run to compare with.
    """

    @property
    def job(self) -> Job: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def program(self) -> Program | None: ...
    @property
    def backend(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def store(self) -> Store | None: ...
    @property
    def run_dir(self) -> Path: ...
    @property
    def status(self) -> RankStatus: ...
    @property
    def clock_offset_ns(self) -> int: ...
    @property
    def compares(self) -> bool: ...

    def emit(self, event: dict[str, Any]) -> None:
        """Hands an event to whoever follows the run; the order of one rank's events is kept."""

    def reference(self) -> Reference:
        """What the one-process run found. Blocks until it is there: it is made once for all ranks."""
