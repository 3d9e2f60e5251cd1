"""Step time of this engine, recording on, against torch's own DDP, FSDP2, DTensor and pipelining, side by side.

    python -m tests.benchmarks.peers [--rounds 3] [--hidden 64] [--steps 6]

Both run on 2 ranks of the same machine, one after the other and in turn; the figure is the ratio of median step times.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.job.job import Job
from engine.processes.launch import Member, launch
from tests.engine.running import train

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--seq", type=int, default=64)
    args = parser.parse_args()
    base = {"layers": 4, "hidden": args.hidden, "seq": args.seq, "batch": 16, "steps": args.steps}
    print(f"{'plan, peer':28} {'ours ms':>9} {'torch ms':>9} {'ours ÷ torch':>13}")
    for name, (target, plan) in PEERS.items():
        pairs = [(our_step_seconds(base | plan), torch_step_seconds(target, base | plan)) for _ in range(args.rounds)]
        ours, theirs = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
        print(
            f"{name:28} {ours:9.1f} {theirs:9.1f} {statistics.median(a / b for a, b in pairs):13.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
