"""Iteration times of Megatron-DeepSpeed measured for vTrain (Bang et al. 2024, MICRO), from its data files.

A100-80GB, 8 to a node, 800 Gb/s between nodes; sequences of 2048 tokens, 1F1B, full recomputation.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.job.job import Job
from tests.published.megatron import gpt_job


@dataclass(frozen=True)
class Row:
    """One measured plan."""

    heads: int
    hidden: int
    layers: int
    tp: int
    pp: int
    dp: int
    batch: int
    microbatch: int
    seconds: float

    @property
    def job(self) -> Job:
        plan = {name: value for name, value in vars(self).items() if name != "seconds"}
        return gpt_job(**plan, precision="mixed16")


MEASURED = {
    "3.6B tp=1": Row(32, 3072, 30, 1, 1, 64, 512, 8, 3.5665),
    "3.6B tp=4": Row(32, 3072, 30, 4, 1, 16, 512, 8, 4.6344),
    "3.6B tp=8": Row(32, 3072, 30, 8, 1, 8, 512, 8, 5.1780),
    "18.4B tp=8": Row(48, 6144, 40, 8, 1, 32, 1024, 16, 10.5066),
    "18.4B tp=8 pp=4": Row(48, 6144, 40, 8, 4, 8, 1024, 2, 10.9264),
}
