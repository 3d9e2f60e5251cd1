"""Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (SC21).

Table 1: weak scaling of GPT models from 1.7 billion to 1 trillion parameters on A100-80GB; sequences of 2048 tokens,
vocabulary 51,200, full recomputation. Micro-batches, blocks per virtual stage and the kind of data parallelism are
those of the authors' own script (NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh): up to 18.4B torch's, whose
reductions run under backward, above that Megatron's, which come last.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.job.job import Job
from tests.published.megatron import SEQ, VOCAB, gpt_job


@dataclass(frozen=True)
class Row:
    """A row of table 1. tflops: per GPU, with what is recomputed counted. billions: the printed parameter count."""

    billions: float
    heads: int
    hidden: int
    layers: int
    tp: int
    pp: int
    dp: int
    batch: int
    microbatch: int
    chunks: int
    tflops: int
    percent_of_peak: int

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def job(self) -> Job:
        return gpt_job(
            heads=self.heads, hidden=self.hidden, layers=self.layers, tp=self.tp, pp=self.pp, dp=self.dp,
            batch=self.batch, microbatch=self.microbatch, chunks=self.chunks,
            precision="mixed16", overlap=self.pp == 1,
        )  # fmt: skip

    @property
    def flops(self) -> float:
        """Of one step, equation 3: 96·B·s·l·h²·(1 + s/6h + V/16lh)."""
        b, h, layers = self.batch, self.hidden, self.layers
        return 96 * b * SEQ * layers * h**2 * (1 + SEQ / (6 * h) + VOCAB / (16 * layers * h))

    @property
    def seconds(self) -> float:
        """Of one step, from the printed throughput."""
        return self.flops / (self.tflops * 1e12 * self.gpus)


TABLE1 = {
    "1.7B": Row(1.7, 24, 2304, 24, 1, 1, 32, 512, 16, 1, 137, 44),
    "3.6B": Row(3.6, 32, 3072, 30, 2, 1, 32, 512, 16, 1, 138, 44),
    "7.5B": Row(7.5, 32, 4096, 36, 4, 1, 32, 512, 16, 1, 142, 46),
    "18.4B": Row(18.4, 48, 6144, 40, 8, 1, 32, 1024, 8, 1, 135, 43),
    "39.1B": Row(39.1, 64, 8192, 48, 8, 2, 32, 1536, 4, 1, 138, 44),
    "76.1B": Row(76.1, 80, 10240, 60, 8, 4, 32, 1792, 2, 3, 140, 45),
    "145.6B": Row(145.6, 96, 12288, 80, 8, 8, 24, 2304, 2, 2, 148, 47),
    "310.1B": Row(310.1, 128, 16384, 96, 8, 16, 15, 2160, 1, 2, 155, 50),
    "529.6B": Row(529.6, 128, 20480, 105, 8, 35, 9, 2520, 1, 3, 163, 52),
    "1008.0B": Row(1008.0, 160, 25600, 128, 8, 64, 6, 3072, 1, 1, 163, 52),
}
