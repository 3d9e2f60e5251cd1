"""What a rank's process does: connect, build, train, write, prove."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
import torch.fx.experimental.symbolic_shapes  # backward would load it (1 s) in every rank: once, before the fork
from torch import Tensor
from torch._C._distributed_c10d import FileStore, Store

from engine.communication.comm import Comm
from engine.communication.groups import connect
from engine.execution.malloc_tuning import give_back_freed_memory, keep_freed_memory
from engine.execution.reference import write_losses
from engine.execution.runtime import Runtime
from engine.execution.step_state import StepResult
from engine.job.families import FAMILIES
from engine.job.job import Job
from engine.job.registry import plug_in
from engine.model.family import family_of, loaded
from engine.model.initialization import seeded
from engine.processes.worker_process import MemberContext
from engine.program.compile import compile_job
from engine.program.program import Action, Program
from engine.recording.ledger import Ledger
from engine.recording.live_files import append_live, live_path
from engine.recording.recorder import Recorder
from engine.recording.running_totals import NOTHING, after

for _family in FAMILIES:  # once, before the fork
    loaded(_family.layers)


def run_rank(ctx: MemberContext) -> None:
    """Entry of each rank of a job: ctx.payload holds rank, job, run_dir, backend, device, reference, program."""
    payload = ctx.payload
    _plug_in(payload)
    job, rank = payload["job"], int(payload["rank"])
    run_dir = Path(payload["run_dir"])
    program: Program = payload["program"] or compile_job(job)
    runtime = _build(job, program, rank, payload, FileStore(ctx.rendezvous, job.world_size))
    runtime.comm.on_wait, runtime.comm.on_resume = ctx.status.waiting, ctx.status.computing
    ctx.emit({"event": "ready", "rank": rank, "at_ns": time.perf_counter_ns()})
    texts = {action: str(action).encode() for action in runtime.lane}

    def entering(action: Action) -> None:
        ctx.status.action(texts[action])

    so_far = NOTHING
    ctx.status.step(0)
    for step, start, end, result in _train(runtime, entering):
        ctx.status.writing()
        ops, memory = runtime.recorder.flush(step), runtime.ledger.flush(step)
        so_far = after(so_far, ops, memory)
        append_live(live_path(run_dir, rank), ops, memory, so_far)
        ctx.emit({"event": "step", "rank": rank, "step": step, "loss": result.loss, "grad_norm": result.grad_norm,
                  "start_ns": start, "end_ns": end})  # fmt: skip
        ctx.status.step(min(step + 1, job.training.steps - 1))
    time.sleep(0.02)  # until the threads of gloo have let go of what they sent last
    give_back_freed_memory()
    rss = psutil.Process().memory_info().rss
    difference: dict[str, float] = {}
    if payload["reference"]:
        ctx.status.action(b"waiting for the one-process reference")
        ctx.status.awaiting()
        reference = _await_reference(Path(payload["reference"]))
        ctx.status.action(b"comparing with the one-process reference")
        difference = _compare(runtime, reference["weights"])
        if rank == 0:
            ctx.emit({"event": "reference", "losses": reference["losses"], "grad_norms": reference["grad_norms"]})
    ctx.emit({"event": "finished", "rank": rank, "rss_bytes": rss, "fingerprint": _fingerprint(runtime), **difference})


def run_reference(ctx: MemberContext) -> None:
    """Entry of the process that trains the same job alone and leaves what it found for the ranks to compare with."""
    _plug_in(ctx.payload)
    job, path = ctx.payload["job"].one_process(), Path(ctx.payload["reference"])
    runtime = _build(job, compile_job(job), 0, ctx.payload | {"backend": "gloo"}, None)
    found: dict[str, Any] = {"losses": [], "grad_norms": []}
    for step, _, _, result in _train(runtime, lambda a: ctx.status.action(b"one-process reference")):
        runtime.recorder.flush(step)
        runtime.ledger.flush(step)
        found["losses"].append(result.loss)
        found["grad_norms"].append(result.grad_norm)
    found["weights"] = {name: p.detach().clone() for b in runtime.buckets.values() for name, p in b.params.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    losses = {name: found[name] for name in ("losses", "grad_norms")}
    write_losses(path, losses)
    ctx.emit({"event": "reference", **losses})
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    torch.save(found, unfinished)
    unfinished.rename(path)


def _plug_in(payload: dict[str, Any]) -> None:
    for module in payload["plugins"]:
        plug_in(module)


def _build(job: Job, program: Program, rank: int, payload: dict[str, Any], store: Store | None) -> Runtime:
    torch.set_num_threads(1)
    keep_freed_memory()
    device = torch.device(payload["device"])
    if device.type == "cuda":
        torch.cuda.set_device(device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    recorder, ledger = Recorder(rank, synchronize), Ledger(rank)
    comm = Comm(rank, payload["backend"], connect(job, rank, payload["backend"], store), recorder)
    return Runtime(job, program, rank, comm, device, ledger, seeded(job.training.seed))


def _train(runtime: Runtime, entering: Callable[[Action], None]) -> Iterator[tuple[int, int, int, StepResult]]:
    """Yields (step, start ns, end ns, result) of each step."""
    job, family = runtime.job, family_of(runtime.job.model)
    for step in range(job.training.steps):
        data = [torch.from_numpy(micro).to(runtime.device) for micro in family.batch(job, step, runtime.replica)]
        start = time.perf_counter_ns()
        result = runtime.run_step(data, step, entering)
        yield step, start, time.perf_counter_ns(), result


def _await_reference(path: Path) -> dict[str, Any]:
    """What `run_reference` wrote, now or in an earlier run."""
    while not path.exists():
        time.sleep(0.02)
    try:
        kept: dict[str, Any] = torch.load(path, mmap=True)
        return kept
    except Exception as error:
        path.unlink(missing_ok=True)
        raise RuntimeError(f"the kept reference {path} was damaged and has been removed: run again") from error


def _fingerprint(runtime: Runtime) -> str:
    """A digest of the weights this rank holds: replicas have one and the same, if they are equal to the last bit."""
    digest = hashlib.blake2b(digest_size=8)
    for bucket in runtime.buckets.values():
        digest.update(bucket.held().cpu().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _compare(runtime: Runtime, weights: dict[str, Tensor]) -> dict[str, float]:
    """Largest |Δ| between this rank's weights and the reference's, absolute and ÷ the model's largest weight.

    The scale is the whole model's: a bias that starts at zero has none of its own, and Adam turns rounding in a
    gradient that is nearly zero into a visible part of its first step.
    """
    found = [bucket.largest_difference(lambda param: weights[param.name]) for bucket in runtime.buckets.values()]
    worst = max(found, key=lambda d: (math.isnan(d), d))  # plain max would lose a NaN
    largest = max(float(w.abs().max()) for w in weights.values())
    return {"param_max_abs_diff": worst, "param_max_rel_diff": worst / largest}
