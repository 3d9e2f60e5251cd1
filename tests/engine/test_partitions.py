"""Partitions that the planner tries, held against all that there are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from engine.cluster.cluster import load_cluster
from engine.job.job import Job, Model, Training
from engine.planner.estimate.bounds import bound, bound_of_partitions
from engine.planner.estimate.estimate import Estimator
from engine.planner.explain import in_runs, name_of
from engine.planner.partitions import replaced
from engine.planner.plans import Space, job_of, shapes, variants
from engine.planner.search import most_ranks, search
from engine.planner.table import fitting

A100 = load_cluster("a100-dgx")


def a_job(layers: int, hidden: int, vocab: int, batch: int = 12, tied: bool = False) -> Job:
    model = Model(layers=layers, hidden=hidden, heads=8, seq=512, vocab=vocab, tied=tied)
    return Job(model=model, training=Training(batch=batch, precision="mixed18"))


def every_partition(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    for cuts in combinations(range(1, layers), stages - 1):
        edges = (0, *cuts, layers)
        yield tuple(end - start for start, end in pairwise(edges))


def fastest_of_all(job: Job, gpus: int, fixed: dict[str, Any], limit: int) -> float:
    """Seconds of the fastest plan that fits under any partition that there is."""
    space = Space.of(job, fixed)
    ranks, legal = most_ranks(space, gpus)
    estimator = Estimator(space, A100, ranks, sorted({shape.tp for shape, _ in legal}))
    every = [
        (replaced(shape, partition), plans)
        for shape, plans in legal
        for partition in every_partition(job.model.layers, shape.pp * shape.chunks)
    ]
    table = fitting(estimator, every, limit)[0]
    return float(table.parts[:, table.best(1, effort=10**9)[0]].sum())


@pytest.mark.parametrize(
    ("job", "gpus", "fixed"),
    [
        (a_job(7, 1024, 65536), 4, {"pp": 3, "zero": 3, "recompute": "full", "schedule": "1f1b"}),
        (a_job(9, 256, 16384), 8, {"pp": 4, "zero": 0, "recompute": "selective", "schedule": "zb-h1"}),
        (a_job(7, 512, 16384, tied=True), 4, {"pp": 2, "zero": 1, "recompute": "full", "schedule": "interleaved"}),
        (a_job(8, 512, 16384, batch=8), 4, {"pp": 2, "zero": 1, "recompute": "none", "schedule": "zb-v"}),
        (a_job(10, 512, 512), 4, {"pp": 4, "zero": 1, "recompute": "none", "schedule": "gpipe"}),
    ],
)
def test_the_winner_is_as_fast_as_the_best_of_all_partitions(job: Job, gpus: int, fixed: dict[str, Any]) -> None:
    found = search(job, A100, gpus, fixed=fixed, refine=0)
    best = fastest_of_all(job, gpus, fixed, found.limit_bytes)
    assert min(one.estimate for one in found.ranked if not one.idle_gpus or found.full is None) <= best * (1 + 1e-9)


def test_a_head_that_is_worth_many_blocks_leaves_the_last_stage_one() -> None:
    """And a winner with its own partition is compared with the same plan under the balanced one."""
    fixed = {"pp": 3, "zero": 3, "recompute": "full", "schedule": "1f1b", "tp": 1, "dp": 1}
    found = search(a_job(7, 1024, 65536), A100, 4, fixed=fixed, refine=0)
    partition = found.winner.job.plan.partition
    assert partition is not None and partition[-1] == 1 and sum(partition) == 7
    assert in_runs(partition) in name_of(found.winner.job)
    balanced = found.nearest["partition"]
    assert balanced.job.plan.partition is None
    assert balanced.estimate > found.winner.estimate
    assert any(sentence.startswith("the balanced partition, blocks") for sentence in found.sentences)


def test_layers_that_do_not_divide_are_planned_for() -> None:
    """10 layers on 4 pipeline ranks: the engine shares them out unevenly, with a partition or without."""
    found = search(a_job(10, 512, 512), A100, 4, fixed={"pp": 4, "schedule": "1f1b"}, refine=0)
    assert found.winner.job.plan.pp == 4


def test_a_partition_that_is_fixed_is_kept() -> None:
    fixed = {"pp": 2, "chunks": 1, "schedule": "1f1b", "partition": (5, 2)}
    found = search(a_job(7, 512, 512), A100, 4, fixed=fixed, refine=0)
    assert {one.job.plan.partition for one in found.ranked} == {(5, 2)}


def test_no_step_is_shorter_than_the_bound_of_its_partition_or_of_all() -> None:
    rng = random.Random(7)
    for _ in range(12):
        job = a_job(rng.randint(5, 9), rng.choice((256, 1024)), rng.choice((512, 16384)))
        space = Space(job)
        shape = rng.choice([shape for shape in shapes(space, 4) if 1 < shape.pp * shape.chunks < job.model.layers])
        plans = variants(space, shape)
        plan = plans.where(np.array([rng.randrange(len(plans))]))
        partition = rng.choice(list(every_partition(job.model.layers, shape.pp * shape.chunks)))
        estimator = Estimator(space, A100, 4, [shape.tp])
        own = replaced(shape, partition)
        seconds = estimator.parts([(own, plan)])[0].sum()
        assert bound(estimator, own, plan)[0] <= seconds * 1.001, job_of(space, own, plan, 0).plan
        assert bound_of_partitions(estimator, shape, plan)[0] <= seconds * 1.001, job_of(space, own, plan, 0).plan


def test_blocks_of_equal_neighbours_are_told_together() -> None:
    assert in_runs((4, 4, 4, 2)) == "3 × 4 + 2"
    assert in_runs((1, 5, 1)) == "1 + 5 + 1"
