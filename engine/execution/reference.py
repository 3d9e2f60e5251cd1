"""The one-process run that every other is compared with, kept so that the next plan of the same model finds it there.

What one process computes depends on the model and the training alone, not on the plan. So a learner who moves a
parallel degree waits for it only once. The file's name holds a digest of everything it depends on, this engine's
source included. Beside it lies what can be read without torch, with a hash of both, and its rounding floor: how far
the same training in one process gets from it when its sums are taken in another order.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.home import HOME
from engine.job.job import Job, Plan
from engine.job.registry import plugged_in
from engine.model.data import text_digest
from engine.versions import version
from engine.whole_file import write_whole

KEEP_BYTES = 2**30
KEEP_SECONDS = 3600
VERSION = 2
"""Of what is kept: what another one wrote is made anew."""
MOST_STEPS = 100
"""Steps after which weights are looked at; of a longer training the first half of these, the others evenly after."""

LOSSES = ("losses", "grad_norms", "moved")
"""What is kept beside the weights: by step, and whether the weights moved."""


def reference_path(job: Job, root: Path) -> Path:
    """Where the weights, losses and gradient norms of `job` on one process are, or will be."""
    versions = f"torch {version('torch')}, numpy {version('numpy')}".encode()
    parts = (job.one_process().to_toml().encode(), text_digest(job.training.text), source(), versions)
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


def other_order(job: Job) -> Job:
    """The same training in one process whose sums are taken in another order: its batch is split into more
    micro-batches, up to four times as many, so that it costs about the same. Equal to `Job.one_process` for a batch
    that cannot be split so."""
    one, batch = job.one_process(), job.training.batch
    few = one.plan.microbatches
    more = (n for n in range(few + 1, min(batch, 4 * few) + 1) if batch % n == 0)
    return replace(one, plan=Plan(microbatches=next(more, few)))


def watched_steps(steps: int) -> tuple[int, ...]:
    """The steps, counted from 0, after which weights are looked at: the last one is always among them."""
    if steps <= MOST_STEPS:
        return tuple(range(steps))
    early = MOST_STEPS // 2
    spread = (early + (i + 1) * (steps - early) // early - 1 for i in range(early))
    return (*range(early), *spread)


def usable(path: Path) -> bool:
    """Whether a kept reference is there and, by its hash, as it was written. Marks it as used; removes one that is
    not, to be made anew."""
    return _facts_of(path) is not None


def kept_losses(path: Path) -> dict[str, Any] | None:
    """`{"losses": […], "grad_norms": […], "moved": …}` of the reference kept at `path`; None if it is not `usable`."""
    facts = _facts_of(path)
    return None if facts is None else {name: facts[name] for name in LOSSES}


def kept_floor(path: Path) -> dict[str, Any] | None:
    """The rounding floor of the reference kept at `path`, as `write_floor` got it; None if there is none to rely on."""
    facts, floor = _facts_of(path), _read_facts(floor_path(path))
    if facts is None or floor is None or floor["reference"] != facts["sha256"]:
        return None
    _mark_used(floor_path(path))
    found: dict[str, Any] = floor["floor"]
    return found


def write_losses(path: Path, found: Mapping[str, Any], sha256: str) -> None:
    """What is beside the reference that will be written to `path`, whose bytes have this hash."""
    _write_facts(_losses_path(path), {name: found[name] for name in LOSSES} | {"sha256": sha256})


def write_floor(path: Path, floor: Mapping[str, Any]) -> None:
    """Keeps the floor of the reference that is at `path`."""
    facts = _facts_of(path)
    if facts is not None:  # it has been damaged since: the next run makes both anew
        _write_facts(floor_path(path), {"reference": facts["sha256"], "floor": dict(floor)})


def _facts_of(path: Path) -> dict[str, Any] | None:
    """What is kept beside the reference at `path`, if both are whole; else the reference is removed, if there is one.

    The losses are written first: one that lies there without them is a leftover, not one that is being written.
    """
    if not path.exists():
        return None
    _mark_used(path, _losses_path(path))
    facts = _read_facts(_losses_path(path))
    if facts is not None and facts["sha256"] == _hash_of(path):
        return facts
    path.unlink(missing_ok=True)
    return None


def _losses_path(path: Path) -> Path:
    return path.with_suffix(".json")


def floor_path(path: Path) -> Path:
    return path.with_suffix(".floor.json")


def _mark_used(*paths: Path) -> None:
    """For `prune`. Not more often than it has to be: a file of another time is hashed again."""
    for path in paths:
        with suppress(OSError):  # it need not be there
            if time.time() - path.stat().st_mtime > KEEP_SECONDS / 60:
                os.utime(path)


def _hash_of(path: Path) -> str:
    found = path.stat()
    return _hash(path, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(maxsize=8)
def _hash(path: Path, state: tuple[int, int, int]) -> str:
    """Of a file as long as it is in this state: a run asks more than once."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps({"version": VERSION, "sha256": _seal(facts), "facts": facts}))


def _read_facts(path: Path) -> dict[str, Any] | None:
    """None for what is not there, cannot be read, was changed, or is of another version."""
    try:
        found = json.loads(path.read_bytes())
        facts: dict[str, Any] = found["facts"]
        return facts if found["version"] == VERSION and found["sha256"] == _seal(facts) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _seal(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


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
