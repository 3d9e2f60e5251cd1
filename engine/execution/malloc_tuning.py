"""Freed memory stays with the process, as on a GPU, whose allocator caches: buffers come and go in every micro-batch.

glibc hands freed blocks of more than 128 KiB back to the system at once, and the next buffer of that size is mapped and
cleared page by page again. For ZeRO-3, whose parameters are gathered and released all the time, that costs more than
the gathering.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # the options' numbers in malloc.h
_LARGEST = 32 * 2**20  # the highest threshold that glibc takes


def keep_freed_memory() -> None:
    """Blocks of up to 32 MiB are kept for reuse from now on. To be called before there are threads."""
    if (mallopt := _of_libc("mallopt")) is not None:
        mallopt(_ARENA_MAX, 1)  # one heap for all threads: only of that can what is free be given back
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def give_back_freed_memory() -> None:
    """So that what the system counts for the process is what it holds."""
    if (malloc_trim := _of_libc("malloc_trim")) is not None:
        malloc_trim(0)


def _of_libc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
