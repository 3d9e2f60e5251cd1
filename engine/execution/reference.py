"""The one-process run that every other is compared with, kept so that the next plan of the same model finds it there.

What one process computes depends on the model and the training alone, not on the plan. So a learner who moves a
parallel degree waits for it only once. The file's name holds a digest of everything it depends on, this engine's
source included.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
import zipfile
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from engine.home import HOME
from engine.job.job import Job
from engine.job.registry import plugged_in
from engine.model.data import corpus
from engine.whole_file import write_whole

KEEP_BYTES = 2**30
KEEP_SECONDS = 3600


def reference_path(job: Job, root: Path) -> Path:
    """Where the weights, losses and gradient norms of `job` on one process are, or will be."""
    text = corpus(job.training.text).tobytes()
    versions = f"torch {version('torch')}, numpy {version('numpy')}".encode()
    parts = (job.one_process().to_toml().encode(), text, source(), versions)
    return root / f"{hashlib.sha256(b'/'.join(parts)).hexdigest()[:20]}.pt"


def source() -> bytes:
    """A digest of the engine's own code: a change of it must not be compared with what the old code did.

    What is plugged in belongs to it.
    """
    return _digest(plugged_in())


@lru_cache(maxsize=8)
def _digest(modules: tuple[str, ...]) -> bytes:
    plugins = [Path(found) for name in modules if (found := sys.modules[name].__file__)]
    files = [*sorted(HOME.rglob("*.py")), *plugins]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).digest()


def usable(path: Path) -> bool:
    """Whether a kept reference is there and whole. Marks it as used; removes a damaged one, to be made anew."""
    if not path.exists():
        return False
    if zipfile.is_zipfile(path):  # what torch.save writes
        os.utime(path)
        with suppress(OSError):  # it need not be there
            os.utime(_losses_path(path))
        return True
    path.unlink(missing_ok=True)
    return False


def _losses_path(path: Path) -> Path:
    return path.with_suffix(".json")


def write_losses(path: Path, found: dict[str, Any]) -> None:
    """Keeps the losses and gradient norms beside the reference too, for those who cannot read it without torch."""
    write_whole(_losses_path(path), json.dumps(found))


def kept_losses(path: Path) -> dict[str, Any] | None:
    """`{"losses": […], "grad_norms": […]}` of the reference kept at `path`; None if there is none that can be read."""
    try:
        found = json.loads(_losses_path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return found if usable(path) and isinstance(found, dict) else None


def prune(root: Path, keep_bytes: int = KEEP_BYTES) -> None:
    """Removes the files used longest ago until the others fit into `keep_bytes`, and drafts nobody finished.

    What was used within the hour stays: another session may be about to read it.
    """
    old = time.time() - KEEP_SECONDS
    files = sorted(((path.stat(), path) for path in root.glob("*")), key=lambda f: f[0].st_mtime, reverse=True)
    total = 0
    for found, path in files:
        draft = path.suffix == ".part"
        total += 0 if draft else found.st_size
        if found.st_mtime < old and (draft or total > keep_bytes):
            path.unlink(missing_ok=True)
