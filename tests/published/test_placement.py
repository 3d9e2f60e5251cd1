"""Where the tensor groups sit: inside a node they are cheap, across nodes they decide the step.

Narayanan et al. 2021, takeaway 1 of section 3.2: up to the GPUs of a node use tensor parallelism, beyond them
pipeline parallelism; section 5.4.1 measures it on a model of 162 billion parameters.
"""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import pytest

from engine.cluster.cluster import load_cluster
from engine.job.job import Job
from engine.prediction.published_models import preset
from engine.prediction.simulate import simulate
from engine.recording.tables import Recording

CLUSTER = load_cluster("a100-dgx-800g")


def step(**plan: Any) -> Recording:
    options = {"batch": 64, "precision": "mixed16", "recompute": "full"} | plan
    return simulate(Job.from_options(preset("gpt3-175b").job, **options), CLUSTER)


def seconds(recording: Recording) -> float:
    return float(recording.metrics["seconds"][0].as_py())


def tensor_seconds(recording: Recording) -> float:
    """Of rank 0 in its tensor group's collectives."""
    rows = recording.ops.filter(pc.and_(pc.equal(recording.ops["rank"], 0), pc.equal(recording.ops["group"], "tp")))
    return float(pc.sum(pc.subtract(rows["end_ns"], rows["start_ns"])).as_py()) / 1e9


def test_tensor_groups_across_nodes_slow_the_step_by_what_they_talk_longer() -> None:
    plan = {"tp": 8, "pp": 8, "dp": 4, "microbatches": 16}
    inside, across = step(**plan), step(**plan, order="dp-tp-pp")
    longer = tensor_seconds(across) - tensor_seconds(inside)
    assert seconds(across) > 1.3 * seconds(inside)
    assert tensor_seconds(across) > 3 * tensor_seconds(inside)
    # the bubble grows with the stages' own times; data groups now sit in the nodes and give a tenth of it back
    bubble = (16 + 8 - 1) / 16
    assert 0.8 < (seconds(across) - seconds(inside)) / (bubble * longer) < 1.0


def test_beyond_a_node_pipeline_ranks_are_better_than_tensor_ranks() -> None:
    """64 GPUs a replica: tensor 8 × pipeline 8 against 16 × 4, 32 × 2 and, with nodes left idle by neither, 4 × 16."""
    times = {tp: seconds(step(tp=tp, pp=64 // tp, microbatches=64)) for tp in (8, 16, 32)}
    assert times[8] < times[16] < times[32]


def test_sequence_parallelism_sends_as_many_bytes_as_plain_tensor_parallelism() -> None:
    """An all-reduce is a reduce-scatter and an all-gather (Korthikanti et al. 2022, section 4.2.2)."""
    plan = {"tp": 8, "pp": 8, "microbatches": 16, "recompute": "none"}
    plain, scattered = (
        {op: sent(step(**plan, sequence_parallel=on), op) for op in ("all_reduce", "reduce_scatter", "all_gather")}
        for on in (False, True)
    )
    # backward gathers the input of both pairs once more, for the weight gradient
    blocks = plain["all_reduce"] / 4
    assert scattered["reduce_scatter"] == pytest.approx(2 * blocks, rel=0.02)
    assert scattered["all_gather"] == pytest.approx(3 * blocks, rel=0.02)


def sent(recording: Recording, op: str) -> int:
    """Logical bytes of one rank in the middle of the pipeline, in its tensor group."""
    ops = recording.ops
    middle = sorted(set(ops["rank"].to_pylist()))[4]
    mine = pc.and_(pc.equal(ops["rank"], middle), pc.and_(pc.equal(ops["group"], "tp"), pc.equal(ops["op"], op)))
    return int(pc.sum(ops.filter(mine)["logical_bytes"]).as_py() or 0)
