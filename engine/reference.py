"""The one-process run that every other is compared with, kept so that the next plan of the same model finds it there.

What one process computes depends on the model and the training alone, not on the plan. So a learner who moves a
parallel degree waits for it only once. The file's name holds a digest of everything it depends on, this engine's
source included.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from engine.job import Job

KEEP_BYTES = 2**30


def reference_path(job: Job, root: Path) -> Path:
    """Where the weights, losses and gradient norms of `job` on one process are, or will be."""
    text = (Path(job.training.text).read_bytes() if job.training.text else b"").ljust(1)
    parts = (job.one_process().to_toml().encode(), text, _source(), version("torch").encode())
    return root / f"{hashlib.sha256(b'/'.join(parts)).hexdigest()[:20]}.pt"


@lru_cache(maxsize=1)
def _source() -> bytes:
    """A digest of the engine's own code: a change of it must not be compared with what the old code did."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest()


def prune(root: Path, keep_bytes: int = KEEP_BYTES) -> None:
    """Removes the oldest kept references until they fit into `keep_bytes`; the newest always stays."""
    files = sorted(root.glob("*.pt"), key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for path in files:
        total += path.stat().st_size
        if total > keep_bytes and path != files[0]:
            path.unlink(missing_ok=True)
