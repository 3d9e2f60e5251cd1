"""Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models" (arXiv 2205.05198).

Table 3: the plans, all without data parallelism, on A100-80GB. Table 5: measured seconds of an iteration with
everything recomputed and no sequence parallelism, and with the paper's own sequence parallelism and selective
recomputation; MFU and HFU of the latter. Figure 1: gigabytes (2³⁰) per GPU, which the paper's formulas give.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.job.job import Job
from tests.published.megatron import gpt_job


@dataclass(frozen=True)
class Config:
    """A row of tables 3 and 5, and of figure 1.

    state: parameters, gradients and optimizer; baseline, present: activations without and with the paper's methods.
    """

    heads: int
    hidden: int
    layers: int
    tp: int
    pp: int
    chunks: int
    batch: int
    microbatch: int
    full_s: float
    present_s: float
    mfu: float
    hfu: float
    state_gib: float
    baseline_gib: float
    present_gib: float

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def full(self) -> Job:
        """The baseline of table 5."""
        return self._job(recompute="full")

    @property
    def present(self) -> Job:
        """What table 5 calls present work."""
        return self._job(recompute="selective", sequence_parallel=True)

    @property
    def plain(self) -> Job:
        """Nothing recomputed, no sequence parallelism: what figure 1 calls the baseline."""
        return self._job(recompute="none")

    @property
    def state_job(self) -> Job:
        """With the precision that figure 1 counts: fp32 gradients."""
        return self._job(precision="mixed18")

    def _job(self, **options: object) -> Job:
        """mixed16 though gradients were fp32: Megatron-LM adds them up inside the product (its fused weight gradient),
        which moves 4 + 4 − 2 bytes a parameter more; adding 16-bit ones afterwards moves 2 + 2 + 2.
        """
        return gpt_job(
            heads=self.heads, hidden=self.hidden, layers=self.layers, tp=self.tp, pp=self.pp, dp=1, batch=self.batch,
            microbatch=self.microbatch, chunks=self.chunks, **{"precision": "mixed16"} | options,
        )  # fmt: skip


CONFIGS = {
    "22B": Config(64, 6144, 48, 8, 1, 1, 4, 4, 1.42, 1.10, 41.5, 43.7, 45.5625, 59.25, 9.5625),
    "175B": Config(96, 12288, 96, 8, 8, 3, 64, 1, 18.13, 13.75, 51.4, 52.8, 45.5625, 66.84375, 12.3515625),
    "530B": Config(128, 20480, 105, 8, 35, 3, 280, 1, 49.05, 37.83, 56.0, 57.0, 31.640625, 114.0234375, 23.076171875),
    "1T": Config(160, 25600, 128, 8, 64, 1, 512, 1, 94.42, 71.49, 56.3, 57.0, 32.958984375, 131.25, 26.5625),
}
