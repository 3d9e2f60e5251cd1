"""How fast a recording is replayed: rows a second, beside a plain Python pass over the same rows in the same minute.

    python -m tests.benchmarks.replay [--rounds 3]

Pass: one loop that adds up each rank's time row by row, without any communication: the least a replay could do.
First: with reading the columns and finding what waits for what. Again: the same recording at other costs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from engine.cluster.cluster import load_cluster
from engine.cluster.scaled_links import scaled
from engine.job.job import Job
from engine.prediction.replay.replay import replay
from engine.recording.tables import Recording
from tests.engine.written import written

JOB = Job.from_options(dp=2, tp=2, pp=4, zero=1, layers=16, microbatches=213, batch=426)


def rows_per_second(count: int, what: Callable[[], Any]) -> float:
    began = time.perf_counter()
    what()
    return count / (time.perf_counter() - began)


def plain_pass(recording: Recording) -> list[tuple[float, float]]:
    clock: dict[int, float] = {}
    times = []
    ranks, flops = recording.ops["rank"].to_pylist(), recording.ops["flops"].to_pylist()
    for rank, work in zip(ranks, flops, strict=True):
        start = clock.get(rank, 0.0)
        clock[rank] = start + work * 1e-12
        times.append((start, clock[rank]))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    recording, cluster = written(JOB), load_cluster("a100-dgx")
    faster = scaled(cluster, across_bandwidth=2.0)
    count = recording.ops.num_rows
    names = ("pass rows/s", "first rows/s", "ratio", "again rows/s", "ratio")
    print(f"{count} rows")
    print("  ".join(names))
    for _ in range(rounds):
        fresh = Recording(recording.ops, recording.memory, recording.metrics)
        plain = rows_per_second(count, lambda: plain_pass(recording))
        first = rows_per_second(count, lambda fresh=fresh: replay(fresh, JOB, cluster))
        again = rows_per_second(count, lambda fresh=fresh: replay(fresh, JOB, faster))
        row = (plain, first, first / plain, again, again / plain)
        print(
            "  ".join(f"{x:{len(n)}.{2 if n == 'ratio' else 0}f}" for n, x in zip(names, row, strict=True)), flush=True
        )


if __name__ == "__main__":
    main()
