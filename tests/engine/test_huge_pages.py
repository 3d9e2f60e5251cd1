"""Huge pages make forks cheap, and no process larger."""

from __future__ import annotations

import subprocess
import sys

import pytest

GATHERS = """
import mmap, psutil
from engine.processes.fork_server.hugepages import use_huge_pages
size, step = 64 << 20, 2 << 20
own = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
whole, sparse = mmap.mmap(-1, size, flags=own), mmap.mmap(-1, size, flags=own)
whole.write(bytes([1]) * size)
for at in range(0, size, step):
    sparse[at] = 1
before = psutil.Process().memory_info().rss
use_huge_pages()
print(psutil.Process().memory_info().rss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such call")
def test_memory_that_is_used_in_part_is_not_filled_up() -> None:
    done = subprocess.run([sys.executable, "-c", GATHERS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 << 20, "bytes more than before, of 64 MB of which one page in 512 is used"
