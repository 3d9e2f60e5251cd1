"""Templates of computations, kept on disk, so that the next simulation of the same shapes need not load torch.

A file's name holds a digest of everything its templates depend on, torch's version and this engine's source included.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path

from engine.execution.reference import prune, source
from engine.job.job import Job
from engine.loading import import_whole
from engine.model.buckets import buckets_of_pp_rank
from engine.plain_file import read_text
from engine.prediction.op_templates.templates import Piece, Template, Templates, step_job, unit_job
from engine.program.kinds import Kind
from engine.program.program import Action
from engine.recording.tables import OpCost
from engine.versions import version
from engine.whole_file import write_whole

KEEP_BYTES = 16 * 2**20


def unit_templates(job: Job, backend: str, folder: Path | None = None, split: bool = False) -> Templates:
    """(action kind, unit kind) → template of every computation of the job's units; kept in `folder`, if given.

    split: with backwards in two parts.
    """
    return _unit_templates(unit_job(job), backend, folder, split)


def alone_templates(
    job: Job, pp_rank: int, actions: Sequence[Action], backend: str, folder: Path | None = None
) -> dict[Action, Template]:
    """The templates of actions of a pipeline rank that are executed by themselves (`Kind.rows` is "alone")."""
    small, alike = step_job(job, pp_rank)
    ours, theirs = buckets_of_pp_rank(job, pp_rank), buckets_of_pp_rank(small, alike)
    names = {mine.name: its.name for mine, its in zip(ours, theirs, strict=True)}
    there = {a: replace(a, unit=names.get(a.unit, a.unit)) for a in actions}
    found = _alone_templates(small, alike, tuple(there.values()), backend, folder)
    return {a: found[its.kind.name, its.unit] for a, its in there.items()}


def step_template(job: Job, pp_rank: int, backend: str, folder: Path | None = None) -> Template:
    """The template of a whole optimizer step on the ranks of a pipeline rank."""
    step = Action(Kind.STEP)
    return alone_templates(job, pp_rank, [step], backend, folder)[step]


@lru_cache(maxsize=512)
def _unit_templates(job: Job, backend: str, folder: Path | None, split: bool) -> Templates:
    def make() -> Templates:
        import_whole("engine.prediction.op_templates.meta_templates")
        from engine.prediction.op_templates.meta_templates import execute_units  # torch, seconds to import

        return execute_units(job, backend, split)

    return _kept(folder, f"units{' split' * split}, {backend}\n{job.to_toml()}", make)


@lru_cache(maxsize=512)
def _alone_templates(
    job: Job, pp_rank: int, actions: tuple[Action, ...], backend: str, folder: Path | None
) -> Templates:
    def make() -> Templates:
        import_whole("engine.prediction.op_templates.meta_templates")
        from engine.prediction.op_templates.meta_templates import execute_alone

        return execute_alone(job, pp_rank, actions, backend)

    what = ", ".join(map(str, actions))
    return _kept(folder, f"{what} on pipeline rank {pp_rank}, {backend}\n{job.to_toml()}", make)


def _kept(folder: Path | None, of: str, make: Callable[[], Templates]) -> Templates:
    if folder is None:
        return make()
    parts = (of.encode(), source(), f"torch {version('torch')}".encode())
    path = folder / f"{hashlib.sha256(b'/'.join(parts)).hexdigest()[:20]}.json"
    found = _read(path)
    if found is None:
        found = make()
        with suppress(OSError):  # a full disk, or a folder that may not be written: then it is made again next time
            _write(path, found)
            prune(folder, KEEP_BYTES)
    return found


def _read(path: Path) -> Templates | None:
    """What a file holds; None if there is none, or it is damaged."""
    try:
        digest, _, text = read_text(path, KEEP_BYTES).partition("\n")
        if digest != _digest(text):
            return None
        rows = json.loads(text)
        found = {(kind, unit): tuple(_whole(*piece) for piece in pieces) for kind, unit, pieces in rows}
        os.utime(path)
    except (OSError, ValueError, TypeError):
        return None
    return found or None


def _write(path: Path, templates: Templates) -> None:
    rows = [[kind, unit, [_shortened(piece) for piece in pieces]] for (kind, unit), pieces in templates.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(rows)
    write_whole(path, f"{_digest(text)}\n{text}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _shortened(piece: Piece) -> tuple[dict[str, str], dict[str, int]]:
    """Its words and its cost, without what is empty."""
    words = asdict(piece)
    cost = words.pop("cost")
    return {k: v for k, v in words.items() if v}, {k: v for k, v in cost.items() if v}


def _whole(words: dict[str, str], cost: dict[str, int]) -> Piece:
    return Piece(**words, cost=OpCost(**cost))
