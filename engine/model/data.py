"""The training data: text as bytes, no download. Which sequences a step sees depends on the global batch alone."""

from __future__ import annotations

import pydoc_data.topics
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.random  # loaded on first use otherwise, by every rank anew
from numpy.typing import NDArray

from engine.job.job import Job
from engine.model.family import in_microbatches


@lru_cache(maxsize=4)
def corpus(path: str | None) -> NDArray[np.uint8]:
    """The bytes of a text file, or of the 465 KB of language reference that every Python carries."""
    if path is not None:
        return np.frombuffer(Path(path).read_bytes(), np.uint8)
    topics = pydoc_data.topics.topics
    return np.frombuffer("\n\n".join(topics[name] for name in sorted(topics)).encode(), np.uint8)


def global_batch(job: Job, step: int) -> NDArray[np.int64]:
    """The tokens of a step: [batch, seq + 1]; inputs are all but the last token, targets all but the first."""
    text, seq = corpus(job.training.text), job.model.seq
    starts: NDArray[np.int64] = np.random.default_rng((job.training.seed, step)).integers(
        0, len(text) - seq, job.training.batch
    )
    tokens: NDArray[np.int64] = text[starts[:, None] + np.arange(seq + 1)].astype(np.int64)
    return tokens


def microbatches(job: Job, step: int, replica: int) -> NDArray[np.int64]:
    """One replica's share of a step: [microbatches, b, seq + 1]. Replicas take contiguous parts of the batch."""
    return in_microbatches(job, global_batch(job, step), replica)
