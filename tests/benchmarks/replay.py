"""How fast a recording is replayed: rows a second, beside a plain Python pass over the same rows in the same minute.

Pass: one loop that adds up each rank's time row by row, without any communication: the least a replay could do.
First: with reading the columns and finding what waits for what. Again: the same recording at other costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import lab
from engine.cluster.cluster import load_cluster
from engine.cluster.scaled_links import scaled
from engine.job.job import Job
from engine.prediction.replay.replay import replay
from engine.recording.tables import Recorded, Recording
from tests.benchmarks.row import Row
from tests.engine.written import written

JOB = Job.from_options(dp=2, tp=2, pp=4, zero=1, layers=16, microbatches=213, batch=426)


def seconds_of(what: Callable[[], Any]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def plain_pass(recording: Recording) -> list[tuple[float, float]]:
    clock: dict[int, float] = {}
    times = []
    ranks, flops = recording.ops["rank"].to_pylist(), recording.ops["flops"].to_pylist()
    for rank, work in zip(ranks, flops, strict=True):
        start = clock.get(rank, 0.0)
        clock[rank] = start + work * 1e-12
        times.append((start, clock[rank]))
    return times


def measured(rounds: int) -> Iterator[Row]:
    recording, cluster = written(JOB), load_cluster("a100-dgx")
    faster = scaled(cluster, across_bandwidth=2.0)
    first, again = [], []
    for _ in range(rounds):
        fresh = Recorded(recording.ops, recording.memory, recording.metrics)
        plain = seconds_of(lambda: plain_pass(recording))
        first.append((seconds_of(lambda fresh=fresh: replay(fresh, JOB, cluster)), plain))
        again.append((seconds_of(lambda fresh=fresh: replay(fresh, JOB, faster)), plain))
    rows = f"{recording.ops.num_rows:,} rows"
    yield Row.of(f"a replay of {rows}, the first time", "a plain loop over them", first)
    yield Row.of(f"a replay of {rows}, at other costs", "a plain loop over them", again)
    wish = {"model": "gpt3-175b", "tp": 8, "pp": 8, "dp": 16, "cluster": "a100-dgx"}
    lab.simulate(**wish)
    simulated = [
        (seconds_of(lambda: lab.simulate(**wish)), seconds_of(lambda: plain_pass(recording))) for _ in range(rounds)
    ]
    yield Row.of("GPT-3 on 1,024 GPUs simulated, warm", "a plain loop over other rows", simulated)
