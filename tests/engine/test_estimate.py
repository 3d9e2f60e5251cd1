"""Closed-form estimates held against what they stand for: executions on meta, the footprint, and the replay."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest

from engine.cluster.cluster import load_cluster
from engine.cluster.collectives import group_cost
from engine.job.job import Job
from engine.model.buckets import lane_buckets
from engine.planner.estimate.estimate import PARTS, Estimator, estimate
from engine.planner.estimate.memory import peaks, sizes
from engine.planner.estimate.unit_costs import UnitCosts, step_costs
from engine.planner.plans import Space, job_of, shapes, split, variants
from engine.prediction.formulas import bubble_formula
from engine.prediction.peak_memory import predicted_memory
from engine.prediction.published_models import preset
from engine.prediction.rehearsal.template_cache import step_template, unit_templates
from engine.prediction.replay.op_seconds import COSTS
from engine.prediction.simulate import simulate

A100 = load_cluster("a100-dgx")


@cache
def sample(name: str, ranks: int, count: int, seed: int = 0) -> tuple[Job, ...]:
    """Plans picked at random of those that fit, none of them with a program so long that it takes seconds."""
    rng, space = random.Random(seed), Space(preset(name).job)
    found: list[Job] = []
    every = list(shapes(space, ranks))
    while len(found) < count:
        shape = rng.choice(every)
        many = variants(space, shape)
        job = job_of(space, shape, many, rng.randrange(len(many)))
        held = peaks(space, shape, split(job)[2], sizes(job, shape.tp)).sum()
        if held <= 76e9 and job.plan.microbatches * job.model.layers <= 1200:
            found.append(job)
    return tuple(found)


@pytest.mark.parametrize("tp", [2, 8])
@pytest.mark.parametrize("scatter", [False, True])
def test_a_few_executions_give_the_costs_of_all_sizes_exactly(tp: int, scatter: bool) -> None:
    base = preset("llama2-7b").job
    known = UnitCosts(base, (1, 2, 4, 8, 16), "nccl")
    for b in (1, 3, 8):
        job = Job.from_options(base, tp=tp, sequence_parallel=scatter, recompute="none", batch=b, microbatches=1)
        for (kind, unit), template in unit_templates(job, "nccl").items():
            if (kind, unit) == ("backward", "embedding"):
                continue  # a scatter whose operators depend on the device; it costs next to nothing
            wanted = [getattr(template[0].cost, name) for name in COSTS]
            found = known.columns(kind, unit, tp, scatter, "none", np.array([float(b)]))[:, 0]
            assert found == pytest.approx(wanted, rel=1e-9), (b, kind, unit)


def test_recomputing_a_block_costs_what_its_forward_does() -> None:
    job = Job.from_options(preset("llama2-7b").job, tp=2, recompute="full", batch=2, microbatches=1)
    found = unit_templates(job, "nccl")
    own = [getattr(found["recompute", "block"][0].cost, name) for name in COSTS]
    assert own == [getattr(found["forward", "block"][0].cost, name) for name in COSTS]


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_the_optimizer_step_of_small_models_foretells_that_of_large_ones(zero: int) -> None:
    job = Job.from_options(preset("llama2-7b").job, dp=8, tp=2, pp=4, zero=zero, microbatches=16)
    buckets = lane_buckets(job, 1)
    found = step_costs(job, zero, "nccl").columns(
        sum(b.shard for b in buckets), sum(b.padded for b in buckets), len(buckets)
    )
    own = step_template(job, 1, "nccl")[0]
    assert found == pytest.approx([getattr(own.cost, name) for name in COSTS], rel=0.01)


@pytest.mark.parametrize(("name", "ranks"), [("example-12-layer", 16), ("llama2-7b", 64)])
def test_peaks_agree_with_the_footprint(name: str, ranks: int) -> None:
    """State is exact. The total is the sum of the categories' own peaks, which come almost together: 2 % on average."""
    apart = []
    for job in sample(name, ranks, 20):
        space, shape, one = split(job)
        found = peaks(space, shape, one, sizes(job, shape.tp))[:, 0]
        rows = predicted_memory(job)
        apart.append(found.sum() / max(row["total_peak"] for row in rows) - 1)
        assert found[:3].tolist() in [[row[name] for name in ("params", "grads", "optimizer")] for row in rows]
    assert min(apart) > -0.03
    assert max(apart) < 0.15
    assert np.mean(np.abs(apart)) < 0.02


@pytest.mark.parametrize(("name", "ranks"), [("example-12-layer", 16), ("llama2-7b", 64)])
def test_step_times_agree_with_the_replay(name: str, ranks: int) -> None:
    apart = []
    for job in sample(name, ranks, 15, seed=1):
        seconds = simulate(job, A100).metrics["seconds"][0].as_py()
        apart.append(sum(estimate(job, A100).values()) / seconds - 1)
    assert np.max(np.abs(apart)) < 0.10
    assert np.mean(np.abs(apart)) < 0.03


def test_equal_stages_and_free_messages_give_the_published_bubble() -> None:
    base = preset("llama2-7b").job
    fast = load_cluster("a100-dgx")
    for options in ({"schedule": "1f1b"}, {"schedule": "interleaved", "chunks": 2}, {"schedule": "gpipe"}):
        job = Job.from_options(base, dp=4, pp=4, microbatches=32, vocab=256, **options)
        parts = estimate(job, fast)
        inside = sum(parts[name] for name in ("compute", "recompute", "tensor", "bubble"))
        assert parts["bubble"] / inside == pytest.approx(float(bubble_formula(job)), rel=0.05)


def test_a_tensor_group_across_nodes_is_many_times_slower() -> None:
    """C8: the same plan, only its ranks laid out in another order, so that the tensor group of 8 leaves its node."""
    base = Job.from_options(preset("llama2-13b").job, dp=8, tp=8, microbatches=32)
    inside = estimate(base, A100)
    across = estimate(Job.from_options(base, order="dp-tp-pp"), A100)
    group = tuple(range(0, 64, 8))
    nbytes = 2 * 4 * 4096 * 5120
    one = group_cost(A100, tuple(range(8)), 64).seconds("all_reduce", nbytes)
    other = group_cost(A100, group, 64).seconds("all_reduce", nbytes)
    assert across["tensor"] / inside["tensor"] == pytest.approx(float(other / one), rel=0.05)
    assert across["compute"] == pytest.approx(inside["compute"])
    assert sum(across.values()) > 1.5 * sum(inside.values())
    assert set(inside) == set(PARTS)
    assert Estimator(Space(base), A100, 64, [8]).speed == 1.0
