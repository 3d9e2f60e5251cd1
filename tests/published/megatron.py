"""Jobs and programs as Megatron-LM of 2021 and 2022 ran them.

Its messages between stages were waited for at once, and its own data parallelism (`--DDP-impl local`) reduced all
gradients after the pipeline had drained (NVIDIA/Megatron-LM v2.3, megatron/p2p_communication.py and
megatron/model/distributed.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.cluster.cluster import Cluster
from engine.job.job import Job
from engine.prediction.simulate import simulate
from engine.program.compile import compile_job
from engine.program.kinds import Kind
from engine.program.program import Action, Program

SEQ, VOCAB = 2048, 51200
PEAK = 312e12  # FLOP/s of an A100 in 16 bit


def gpt_job(
    *, heads: int, hidden: int, layers: int, tp: int, pp: int, dp: int, batch: int, microbatch: int, chunks: int = 1,
    **options: Any,
) -> Job:  # fmt: skip
    """A GPT with tied embeddings, dropout 0.1, equally many blocks in every stage, and the plan of a table's row."""
    stages = pp * chunks
    return Job.from_options(
        layers=layers, hidden=hidden, heads=heads, seq=SEQ, vocab=VOCAB, tied=True, dropout=0.1,
        tp=tp, pp=pp, dp=dp, batch=batch, microbatches=batch // (dp * microbatch), chunks=chunks, steps=1,
        schedule="interleaved" if chunks > 1 else "1f1b", partition=(layers // stages,) * stages,
        **{"overlap": False, "recompute": "full"} | options,
    )  # fmt: skip


def megatron_program(job: Job) -> Program:
    """The job's program with every reduction of gradients over the data axis after the last backward."""
    return Program(tuple(_reduce_last(lane) for lane in compile_job(job).lanes))


def _reduce_last(lane: Sequence[Action]) -> tuple[Action, ...]:
    late = [a for a in lane if a.kind is Kind.REDUCE and a.axis == "dp"]
    rest = [a for a in lane if not (a.axis == "dp" and a.kind in (Kind.REDUCE, Kind.WAIT))]
    end = next(i for i, a in enumerate(rest) if a.kind is Kind.NORM or a.axis == "tie")
    return (*rest[:end], *late, *rest[end:])


def step_seconds(job: Job, cluster: Cluster) -> float:
    """Simulated seconds of one step.

    Once a long pipeline is full, every p micro-batches more take the same time, so two rounds tell how long many take.
    """
    p, m = job.plan.pp, job.plan.microbatches
    if m <= 2 * p:
        return _simulated(job, cluster)
    few, more = (_simulated(with_microbatches(job, rounds * p), cluster) for rounds in (1, 2))
    return more + (m / p - 2) * (more - few)


def with_microbatches(job: Job, m: int) -> Job:
    """The same plan with `m` micro-batches of the same size."""
    batch = job.microbatch_size * job.plan.dp * m
    return replace(job, plan=replace(job.plan, microbatches=m), training=replace(job.training, batch=batch))


def _simulated(job: Job, cluster: Cluster) -> float:
    program = compile_job(job) if job.plan.overlap else megatron_program(job)
    return float(simulate(job, cluster, program).metrics["seconds"][0].as_py())
