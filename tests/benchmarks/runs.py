"""How long a learner waits: 2 × 2 × 2 ranks from the shell, again in one session, and 64 ranks, beside torchrun.

    python -m tests.benchmarks.runs [--rounds 3]

Prints seconds and, for each round, the ratio to the torchrun script of the same job (`torch_3d`) in the same minute.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import lab
from engine.processes.launch import shutdown

JOB = {"dp": 2, "tp": 2, "pp": 2, "zero": 1}


def seconds(command: list[str]) -> tuple[float, str]:
    began = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - began, done.stdout


def warm_run() -> float:
    began = time.perf_counter()
    assert lab.run(**JOB).summary["parity"]["passed"]
    return time.perf_counter() - began


def step_of(summary: dict[str, list[dict[str, float]]]) -> float:
    return statistics.median(step["seconds"] for step in summary["steps"][1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    flags = [word for name, value in JOB.items() for word in (f"--{name}", str(value))]
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "8",
        "-m",
        "tests.benchmarks.torch_3d",
    ]
    names = ("torchrun s", "its step", "cold lab s", "ratio", "warm lab s", "ratio", "our step", "ratio")
    print("  ".join(names))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHARDLAB_RUNS"] = folder
        for _ in range(rounds):
            theirs, printed = seconds(torchrun)
            their_step = statistics.median(json.loads(printed.splitlines()[-1])["steps"])
            cold, _ = seconds([sys.executable, "-m", "lab.cli", "run", *flags])
            warm_run()
            warm = statistics.median(warm_run() for _ in range(3))
            ours = step_of(lab.load().summary)
            row = (theirs, their_step, cold, theirs / cold, warm, theirs / warm, ours, their_step / ours)
            print("  ".join(f"{x:{len(name)}.2f}" for name, x in zip(names, row, strict=True)), flush=True)
        large = lab.run(dp=4, tp=4, pp=4, layers=16, parity=False)
        print(f"64 ranks, 4 × 4 × 4, 16 layers: ready in {large.summary['time_to_ranks_ready_s']:.1f} s,", end=" ")
        print(f"{step_of(large.summary):.2f} s a step")
    shutdown()


if __name__ == "__main__":
    main()
