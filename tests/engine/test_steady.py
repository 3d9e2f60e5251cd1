"""A step foretold from a few rounds of its pipeline takes as long, and holds as much, as the whole of it replayed."""

from __future__ import annotations

import dataclasses
import random
from fractions import Fraction
from typing import Any

import pytest

from engine.cluster.cluster import Cluster, SlowLink, load_cluster
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.prediction.peak_memory import predicted_memory
from engine.prediction.simulate import simulate
from engine.prediction.steady import foretell

MODEL: dict[str, Any] = {"layers": 9, "hidden": 32, "heads": 4, "seq": 8, "vocab": 61, "steps": 1}


def slowed(name: str, factor: Fraction) -> Cluster:
    """A cluster with a slow link between its first two ranks, so that its pipelines are of unequal parts."""
    return dataclasses.replace(load_cluster(name), slow_links=(SlowLink(between="ranks", a=0, b=1, factor=factor),))


CLUSTERS = (
    load_cluster("a100-dgx"),
    load_cluster("mixed"),
    load_cluster("pcie-box"),
    slowed("toy-2x4", Fraction("0.13")),
)


def drawn(rng: random.Random, schedule: str) -> Job:
    """A plan of 8 ranks at most with so many micro-batches that a few of them tell how long all take."""
    kind = SCHEDULES[schedule]
    pp, tp, dp = rng.choice([(2, 1, 1), (2, 2, 2), (3, 1, 2), (4, 1, 2), (4, 2, 1), (3, 2, 1)])
    microbatches = 2 * pp * rng.randint(9, 14) + (0 if schedule == "interleaved" else rng.randint(0, 3))
    return Job.from_options(
        **MODEL, pp=pp, tp=tp, dp=dp, schedule=schedule, chunks=kind.fitting_chunks(rng.randint(1, 9 // pp)),
        microbatches=microbatches, batch=microbatches * dp, zero=rng.randint(0, 3), overlap=rng.random() < 0.8,
        prefetch=rng.randint(0, 2), keep_gathered=rng.random() < 0.2, sequence_parallel=tp > 1 and rng.random() < 0.5,
        recompute=rng.choice(("none", "selective", "full")), order=rng.choice(("tp-dp-pp", "pp-dp-tp")),
    )  # fmt: skip


def whole(job: Job, cluster: Cluster) -> tuple[float, int]:
    """Seconds and bytes of the whole step, every micro-batch replayed."""
    seconds = simulate(job, cluster).metrics["seconds"][0].as_py()
    return seconds, max(row["total_peak"] for row in predicted_memory(job))


@pytest.mark.parametrize("schedule", SCHEDULES.names)
def test_a_foretold_step_is_the_whole_one_to_the_nanosecond(schedule: str) -> None:
    rng, replayed, most = random.Random(schedule), 0, 0
    for _ in range(4):
        job, cluster = drawn(rng, schedule), rng.choice(CLUSTERS)
        found = foretell(job, cluster)
        seconds, peak = whole(job, cluster)
        assert found.seconds == pytest.approx(seconds, rel=1e-12), job.plan
        assert found.peak_bytes == peak, job.plan
        replayed, most = replayed + found.replayed, most + job.plan.microbatches
    assert (replayed < 0.8 * most) is (schedule != "gpipe"), "GPipe holds more with every micro-batch"


@pytest.mark.parametrize("zero", [0, 2])
def test_without_a_pipeline_a_step_is_foretold_from_its_first_micro_batches(zero: int) -> None:
    job = Job.from_options(**MODEL, dp=2, zero=zero, microbatches=100, batch=200)
    found = foretell(job, CLUSTERS[0])
    assert (found.seconds, found.peak_bytes) == whole(job, CLUSTERS[0])
    assert found.replayed < 20


def test_ten_times_the_micro_batches_are_not_ten_times_the_work() -> None:
    plan = {**MODEL, "pp": 4, "schedule": "zb-h1"}
    few, many = (foretell(Job.from_options(**plan, microbatches=m, batch=m), CLUSTERS[0]) for m in (1_000, 100_000))
    assert few.replayed == many.replayed < 40
    assert many.seconds / few.seconds == pytest.approx(100, rel=0.05)


def test_a_step_of_few_micro_batches_is_replayed_whole() -> None:
    job = Job.from_options(**MODEL, pp=4, microbatches=8, batch=8)
    assert foretell(job, CLUSTERS[0]).replayed == 8
