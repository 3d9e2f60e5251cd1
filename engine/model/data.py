"""The training data: text as bytes, no download. Which sequences a step sees depends on the global batch alone."""

from __future__ import annotations

import errno
import hashlib
import os
import pydoc_data.topics
from functools import lru_cache

import numpy as np
import numpy.random  # loaded on first use otherwise, by every rank anew
from numpy.typing import NDArray

from engine.job.file_name import file_of
from engine.job.job import Job
from engine.model.family import in_microbatches
from engine.plain_file import open_plain


@lru_cache(maxsize=1)
def topics() -> NDArray[np.uint8]:
    """The 465 KB of language reference that every Python carries."""
    found = pydoc_data.topics.topics
    return np.frombuffer("\n\n".join(found[name] for name in sorted(found)).encode(), np.uint8)


def corpus(text: str | None) -> NDArray[np.uint8]:
    """The bytes of a text file, as a job names it, or `topics`. A file is mapped: it needs no memory of its own."""
    if text is None:
        return topics()
    with open_plain(file_of(text)) as file:
        return np.memmap(file, np.uint8, "r")


def text_digest(text: str | None) -> bytes:
    """SHA-256 of `corpus`, found once for each state of a file."""
    if text is None:
        return hashlib.sha256(topics().tobytes()).digest()
    found = file_of(text).stat()
    return _digest(text, (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=16)
def _digest(text: str, state: tuple[int, int, int]) -> bytes:
    with open_plain(file_of(text)) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _sequences(text: str | None, starts: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
    """[starts, length] bytes. Of a file only these are read: a mapped one that is cut short would kill its reader."""
    if text is None:
        found: NDArray[np.uint8] = topics()[starts[:, None] + np.arange(length)]
        return found
    with open_plain(file_of(text)) as file:
        parts = [os.pread(file.fileno(), length, int(at)) for at in starts]
    if any(len(part) < length for part in parts):
        raise OSError(errno.EINVAL, "the text was cut short while it was read", str(file_of(text)))
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, length)


def _length(text: str | None) -> int:
    return len(topics()) if text is None else file_of(text).stat().st_size


def global_batch(job: Job, step: int) -> NDArray[np.int64]:
    """The tokens of a step: [batch, seq + 1]; inputs are all but the last token, targets all but the first."""
    text, seq = job.training.text, job.model.seq
    starts: NDArray[np.int64] = np.random.default_rng((job.training.seed, step)).integers(
        0, max(1, _length(text) - seq), job.training.batch
    )
    return _sequences(text, starts, seq + 1).astype(np.int64)


def microbatches(job: Job, step: int, replica: int) -> NDArray[np.int64]:
    """One replica's share of a step: [microbatches, b, seq + 1]. Replicas take contiguous parts of the batch."""
    return in_microbatches(job, global_batch(job, step), replica)
