"""Ranks in other surroundings than the fork server's: told by the environment who they are, as a cluster's launcher
does it.

    python -m tests.seams.environment_ranks FOLDER RANKS

FOLDER holds job.toml. Starts the ranks, whose rows, events and reference come to lie in FOLDER.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore

from engine.execution.one_process import train_alone
from engine.execution.rank_context import RankContext, Reference
from engine.execution.worker import run_rank
from engine.job.job import Job
from engine.program.program import Program

PATIENCE = timedelta(minutes=2)
SKEW_NS = 10**15
"""What the clocks of ranks other than 0 are behind, as on another machine: eleven days."""


class NoStatus:
    """Nobody looks."""

    def action(self, text: bytes) -> None: ...
    def waiting(self) -> None: ...
    def awaiting(self) -> None: ...
    def computing(self) -> None: ...
    def writing(self) -> None: ...
    def step(self, number: int) -> None: ...


@dataclass(frozen=True)
class EnvironmentRank:
    """From RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; rank 0 makes the reference, for all."""

    job: Job
    run_dir: Path
    rank: int
    world_size: int
    device: str
    status: NoStatus = NoStatus()  # noqa: RUF009  (it holds nothing)
    program: Program | None = None
    backend: str = "gloo"
    compares: bool = True

    @classmethod
    def here(cls, run_dir: Path, kind: str) -> EnvironmentRank:
        device = f"cuda:{os.environ['LOCAL_RANK']}" if kind == "cuda" else kind
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return cls(Job.from_toml(run_dir / "job.toml"), run_dir, rank, ranks, device)

    @cached_property
    def store(self) -> TCPStore:
        return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=PATIENCE)

    @property
    def clock_offset_ns(self) -> int:
        return SKEW_NS if self.rank else 0

    def emit(self, event: dict[str, Any]) -> None:
        with (self.run_dir / f"events.rank{self.rank:03d}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def reference(self) -> Reference:
        path = self.run_dir / "reference.pt"
        if self.rank == 0:
            train_alone(self.job, path, self.status, self.emit)
            self.store.set("reference", "made")
        self.store.wait(["reference"], PATIENCE)
        found: Reference = torch.load(path, mmap=True)
        return found


def main(run_dir: Path, ranks: int) -> int:
    """The worst exit status of the ranks. They are forked, so that torch is imported once."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    children = []
    for rank in range(ranks):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        child = os.fork()
        if not child:
            _rank(run_dir)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def _rank(run_dir: Path) -> None:
    status = 1
    try:
        surroundings: RankContext = EnvironmentRank.here(run_dir, "cpu")
        run_rank(surroundings)
        status = 0
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
