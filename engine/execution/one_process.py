"""The one-process run that others are compared with, and its rounding floor: the same with another order of sums."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from engine.communication.comm import Comm
from engine.communication.groups import connect
from engine.execution.rank_context import RankStatus, Reference
from engine.execution.reference import LOSSES, other_order, write_floor, write_losses
from engine.execution.runtime import Runtime
from engine.execution.weight_samples import WeightLooks
from engine.execution.worker import compared, settle_in, trained
from engine.job.job import Job
from engine.model.initialization import Source, nudged, seeded
from engine.program.compile import compile_job
from engine.recording.ledger import Ledger
from engine.recording.recorder import Recorder
from engine.whole_file import whole_file

Emit = Callable[[dict[str, Any]], None]


def train_alone(job: Job, path: Path, status: RankStatus, emit: Emit) -> None:
    """Trains the same job in one process and leaves in `path` what it found, a `Reference`, for ranks to compare with.

    Beside it the losses, for those who cannot read it without torch (`engine.execution.reference`).
    """
    start = seeded(job.training.seed)
    runtime, looks, found = _train(job.one_process(), start, lambda: status.action(b"one-process reference"))
    found["weights"] = {name: p.detach().clone() for b in runtime.buckets.values() for name, p in b.params.items()}
    found["samples"] = looks.samples()
    emit({"event": "reference", **{name: found[name] for name in LOSSES}})
    keep_reference(path, found)


def keep_reference(path: Path, found: Reference) -> None:
    """Writes a `Reference` and what lies beside it. The same values always give the same bytes."""
    content = BytesIO()
    torch.save(found, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_losses(path, found, hashlib.sha256(content.getbuffer()).hexdigest())
    with whole_file(path) as draft:
        draft.write_bytes(content.getbuffer())


def train_in_another_order(job: Job, path: Path, kept: bool, status: RankStatus, emit: Emit) -> None:
    """Trains the job in one process with its sums in another order and its first weights a last bit apart, and keeps
    how far that is from the reference at `path`: its rounding floor, {losses, grad_norms, moved, param_max_abs_diff,
    param_max_rel_diff, weights}. kept: whether the reference was there before, see `await_reference`.

    The last bits stand for the rounding inside a forward, which a split of the batch leaves as it is, and other plans
    do not (a tensor-parallel one adds up every activation in another order).
    """
    start = nudged(seeded(job.training.seed))
    runtime, looks, found = _train(other_order(job), start, lambda: status.action(b"rounding floor"))
    status.action(b"waiting for the one-process reference")
    status.awaiting()
    floor = found | compared(runtime, looks, await_reference(path, kept))
    emit({"event": "floor", **floor})
    write_floor(path, floor)


def _train(job: Job, start: Source, entering: Callable[[], None]) -> tuple[Runtime, WeightLooks, Reference]:
    """What is left after training, what was seen of the weights, and {losses, grad_norms, moved}."""
    settle_in()
    comm = Comm(0, "gloo", connect(job, 0, "gloo", None), Recorder(0))
    runtime = Runtime(job, compile_job(job), 0, comm, torch.device("cpu"), Ledger(0), start)
    looks = WeightLooks.of(runtime.buckets.values(), job.training.steps)
    found: Reference = {"losses": [], "grad_norms": []}
    for step, _, _, result in trained(runtime, lambda action: entering()):
        looks.look(step)
        runtime.recorder.flush(step)
        runtime.ledger.flush(step)
        found["losses"].append(result.loss)
        found["grad_norms"].append(result.grad_norm)
    return runtime, looks, found | {"moved": looks.moved(start)}


def await_reference(path: Path, kept: bool) -> Reference:
    """What `train_alone` wrote, now or in an earlier run.

    kept: it was there when this run began, so that nobody writes it anew. Raises `RuntimeError` if it is gone, or if
    it cannot be read.
    """
    while not path.exists():
        if kept:
            raise RuntimeError(f"the kept reference {path} was removed while the run went on: run again")
        time.sleep(0.02)
    try:
        found: Reference = torch.load(path, mmap=True)
        return found
    except Exception as error:
        path.unlink(missing_ok=True)
        raise RuntimeError(f"the kept reference {path} was damaged and has been removed: run again") from error
