"""Step time of this engine, recording on, against torch's own DDP, FSDP2, DTensor and pipelining, side by side.

Both run on 2 ranks of the same machine, one after the other and in turn; a round's figure is its median step time.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.job.job import Job
from engine.processes.launch import Member, launch
from tests.benchmarks.row import Row
from tests.engine.running import train

BASE = {"layers": 4, "hidden": 64, "seq": 64, "batch": 16, "steps": 20}
PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "data parallel, DDP": ("ddp", {"dp": 2, "microbatches": 1}),
    "ZeRO-3, FSDP2": ("fsdp2", {"dp": 2, "microbatches": 1, "zero": 3}),
    "tensor parallel, DTensor": ("dtensor", {"tp": 2, "microbatches": 1}),
    "pipeline 1F1B, pipelining": ("pipelining", {"pp": 2, "microbatches": 4}),
}


def our_step_seconds(options: dict[str, Any]) -> float:
    """Median time from one step's end to the next on rank 0, so that writing the recording counts."""
    run = train(parity=False, **options)
    ends: dict[int, int] = {}
    for row in run.ops.to_pylist():
        if row["rank"] == 0:
            ends[row["step"]] = max(ends.get(row["step"], 0), row["end_ns"])
    times = [ends[step] for step in sorted(ends)]
    return statistics.median(b - a for a, b in pairwise(times[1:])) / 1e9


def torch_step_seconds(target: str, options: dict[str, Any]) -> float:
    found: list[list[float]] = []
    job = Job.from_options(**options)
    with tempfile.TemporaryDirectory() as folder:
        launch(
            [Member(f"rank {r}", f"tests.engine.oracles:{target}", {"job": job.options()}) for r in range(2)],
            log_path=Path(folder) / "log.txt", run_json=None, hang_seconds=60.0,
            on_event=lambda _, event: found.append(event["times"]),
        )  # fmt: skip
    times = found[0]
    return statistics.median(b - a for a, b in pairwise(times[1:]))


def measured(rounds: int) -> Iterator[Row]:
    for name, (target, plan) in PEERS.items():
        what, peer = name.split(", ")
        pairs = [(our_step_seconds(BASE | plan), torch_step_seconds(target, BASE | plan)) for _ in range(rounds)]
        yield Row.of(f"a step, {what}", f"torch {peer}", pairs)
