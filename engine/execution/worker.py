"""What a rank's process does: connect, build, train, write, prove."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import torch
from torch import Tensor

from engine.communication.comm import Comm
from engine.communication.groups import connect
from engine.execution.malloc_tuning import give_back_freed_memory, keep_freed_memory
from engine.execution.rank_context import RankContext, Reference
from engine.execution.reference import LOSSES
from engine.execution.runtime import Runtime
from engine.execution.step_state import StepResult
from engine.execution.weight_samples import WeightLooks
from engine.job.bugs import BUGS
from engine.job.errors import JobRefused
from engine.job.families import FAMILIES
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.family import family_of, loaded
from engine.model.initialization import seeded
from engine.program.compile import program_of
from engine.program.program import Action
from engine.recording.ledger import Ledger
from engine.recording.live_files import append_live, live_path
from engine.recording.recorder import Recorder
from engine.recording.running_totals import NOTHING, after

for _family in FAMILIES:  # once, before the fork
    loaded(_family.layers)


def run_rank(ctx: RankContext) -> None:
    """All that a rank does, wherever it runs. Raises `JobRefused` if there are more or fewer ranks than the job has."""
    job, rank = ctx.job, ctx.rank
    check_ranks_started(job, ctx.world_size)
    runtime = _build(ctx)
    runtime.comm.on_wait, runtime.comm.on_resume = ctx.status.waiting, ctx.status.computing
    ctx.emit({"event": "ready", "rank": rank, "at_ns": time.perf_counter_ns() + ctx.clock_offset_ns})
    texts = {action: str(action).encode() for action in runtime.lane}

    def entering(action: Action) -> None:
        ctx.status.action(texts[action])

    totals = NOTHING
    looks = WeightLooks.of(runtime.buckets.values(), job.training.steps) if ctx.compares else None
    ctx.status.step(0)
    for step, start, end, result in trained(runtime, entering):
        if looks is not None:
            looks.look(step)
        ctx.status.writing()
        ops, memory = runtime.recorder.flush(step), runtime.ledger.flush(step)
        totals = after(totals, ops, memory)
        append_live(live_path(ctx.run_dir, rank), ops, memory, totals)
        ctx.emit({"event": "step", "rank": rank, "step": step, "loss": result.loss, "grad_norm": result.grad_norm,
                  "start_ns": start + ctx.clock_offset_ns, "end_ns": end + ctx.clock_offset_ns})  # fmt: skip
        ctx.status.step(min(step + 1, job.training.steps - 1))
    time.sleep(0.02)  # until the threads of gloo have let go of what they sent last
    give_back_freed_memory()
    rss = psutil.Process().memory_info().rss
    difference = {} if looks is None else _proved(ctx, runtime, looks)
    ctx.emit({"event": "finished", "rank": rank, "rss_bytes": rss, "fingerprint": _fingerprint(runtime), **difference})


def check_ranks_started(job: Job, started: int) -> None:
    """Raises `JobRefused` in words."""
    if started != job.world_size:
        mesh = mesh_of(job)
        degrees = " × ".join(f"{axis}={mesh.degree(axis)}" for axis in mesh.order)
        raise JobRefused(f"{degrees} needs {job.world_size} ranks, but {started} were started: start {job.world_size}.")


def _proved(ctx: RankContext, runtime: Runtime, looks: WeightLooks) -> dict[str, Any]:
    """How far this rank's weights are from those of the one-process run; see `compared`."""
    ctx.status.action(b"waiting for the one-process reference")
    ctx.status.awaiting()
    reference = ctx.reference()
    ctx.status.action(b"comparing with the one-process reference")
    if ctx.rank == 0:
        ctx.emit({"event": "reference", **{name: reference[name] for name in LOSSES}})
    return compared(runtime, looks, reference) | {"moved": looks.moved(seeded(ctx.job.training.seed))}


def _build(ctx: RankContext) -> Runtime:
    settle_in()
    device = torch.device(ctx.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    recorder, ledger = Recorder(ctx.rank, synchronize, ctx.clock_offset_ns), Ledger(ctx.rank, ctx.clock_offset_ns)
    comm = Comm(ctx.rank, ctx.backend, connect(ctx.job, ctx.rank, ctx.backend, ctx.store), recorder)
    program = ctx.program or program_of(ctx.job)
    runtime = Runtime(ctx.job, program, ctx.rank, comm, device, ledger, seeded(ctx.job.training.seed))
    if (bug := ctx.job.fault.bug) and (where := BUGS[bug].in_rank):
        loaded(where)(runtime)
    return runtime


def settle_in() -> None:
    """What a process that computes sets for itself: one thread, and memory that is kept."""
    torch.set_num_threads(1)
    keep_freed_memory()


def trained(runtime: Runtime, entering: Callable[[Action], None]) -> Iterator[tuple[int, int, int, StepResult]]:
    """Yields (step, start ns, end ns, result) of each step."""
    job, family = runtime.job, family_of(runtime.job.model)
    for step in range(job.training.steps):
        data = [torch.from_numpy(micro).to(runtime.device) for micro in family.batch(job, step, runtime.replica)]
        start = time.perf_counter_ns()
        result = runtime.run_step(data, step, entering)
        yield step, start, time.perf_counter_ns(), result


def _fingerprint(runtime: Runtime) -> str:
    """A digest of the weights this rank holds: replicas have one and the same, if they are equal to the last bit."""
    digest = hashlib.blake2b(digest_size=8)
    for bucket in runtime.buckets.values():
        digest.update(bucket.held().cpu().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def compared(runtime: Runtime, looks: WeightLooks, reference: Reference) -> dict[str, Any]:
    """How far this rank's weights are from the reference's: {param_max_abs_diff, param_max_rel_diff, weights}.

    The first two are the largest |Δ| of all it holds after the last step, absolute and ÷ the model's largest weight.
    weights: {parameter: [by watched step, largest |Δ| ÷ the model's largest weight]}, of those looked at and, after the
    last step, of all; None where none of it is looked at here. The scale is the whole model's: a bias that starts at
    zero has none of its own, and Adam turns rounding in a gradient that is nearly zero into a visible part of its first
    step.
    """
    weights: dict[str, Tensor] = reference["weights"]
    scale = _scale(reference)
    sampled = looks.off_by(reference["samples"]) if reference["samples"] else {}
    unseen: list[float | None] = [None] * len(looks.steps)
    off_by: dict[str, list[float | None]] = {}
    worst = 0.0
    for bucket in runtime.buckets.values():
        apart = bucket.off_by(lambda param: weights[param.name]).abs()
        worst = _larger(worst, float(apart.max()))
        for name, part in bucket.held_parts():
            early = [None if x is None else x / scale for x in sampled.get(name, unseen)]
            off_by[name] = [*early[:-1], float(apart[part].max()) / scale]
    return {"param_max_abs_diff": worst, "param_max_rel_diff": worst / scale, "weights": off_by}


def _scale(reference: Reference) -> float:
    """The model's largest weight after the last step; of a training that diverged, which leaves none that is a number,
    the largest that was looked at in the last step that left only numbers, or NaN."""
    largest = torch.stack([w.abs().max().float() for w in reference["weights"].values()]).max()
    if largest.isfinite() or not reference["samples"]:
        return float(largest)
    looked = torch.stack([seen.abs().amax(dim=1) for seen in reference["samples"].values()]).amax(dim=0)
    kept = looked[looked.isfinite()]
    return float(kept[-1]) if len(kept) else math.nan


def _larger(a: float, b: float) -> float:
    """The plain `max` would lose a NaN."""
    return max(a, b, key=lambda x: (math.isnan(x), x))
