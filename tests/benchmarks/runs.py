"""How long a learner waits: 2 × 2 × 2 ranks from the shell, again in one session, and 64 ranks, beside torchrun.

The peer is the torchrun script of the same job (`torch_3d`), in the same minute.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import lab
from engine.processes.launch import shutdown
from tests.benchmarks.row import Row

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


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "8", "-m", "tests.benchmarks.torch_3d"]
LARGE = {"dp": 4, "tp": 4, "pp": 4, "layers": 16}


def measured(rounds: int) -> Iterator[Row]:
    flags = [word for name, value in JOB.items() for word in (f"--{name}", str(value))]
    cold, warm, steps = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHARDLAB_RUNS"] = folder
        for _ in range(rounds):
            theirs, printed = seconds(TORCHRUN)
            cold.append((seconds([sys.executable, "-m", "lab.cli", "run", *flags])[0], theirs))
            warm_run()
            warm.append((statistics.median(warm_run() for _ in range(3)), theirs))
            steps.append(
                (step_of(lab.load().summary), statistics.median(json.loads(printed.splitlines()[-1])["steps"]))
            )
        yield Row.of("2×2×2 ranks with proof, from the shell", "torchrun, DTensor + pipelining", cold)
        yield Row.of("2×2×2 ranks with proof, again in a session", "torchrun, DTensor + pipelining", warm)
        yield Row.of("a step of 2×2×2 ranks", "torchrun, DTensor + pipelining", steps)
        large = step_of(lab.run(**LARGE, parity=False).summary)
        yield Row.of("a step of 64 ranks, 4×4×4, 16 layers", "a step of 8 ranks here", [(large, steps[-1][0])])
    shutdown()
