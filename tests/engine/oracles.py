"""Targets that train the same job with torch's own parallelism; each emits its losses from rank 0."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.utils import clip_grad_norm_

from engine.job.job import Job
from engine.processes.worker_process import MemberContext
from tests.engine.torch_gpt import TorchGPT, adam, batch_of, loss_of


def _start(ctx: MemberContext) -> Job:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(ctx.rendezvous, ctx.size), rank=ctx.index, world_size=ctx.size)
    return Job.from_options(**ctx.payload["job"])


def _finish(ctx: MemberContext, losses: list[float]) -> None:
    """Emits the losses and, for the benchmarks, when each step's loss was known."""
    dist.barrier()
    if ctx.index == 0:
        ctx.emit({"event": "losses", "losses": losses, "times": [t - _TIMES[0] for t in _TIMES]})


_TIMES: list[float] = []


def _mean(loss: Tensor) -> float:
    _TIMES.append(time.perf_counter())
    value = loss.detach().clone()
    dist.all_reduce(value, dist.ReduceOp.SUM)
    return float(value) / dist.get_world_size()


def _data_parallel(ctx: MemberContext, job: Job, module: nn.Module) -> None:
    optimizer, losses = adam(module, job), []
    for step in range(job.training.steps):
        inputs, targets = (x.chunk(ctx.size)[ctx.index] for x in batch_of(job, step))
        loss = loss_of(module(inputs), targets)
        loss.backward()
        clip_grad_norm_(module.parameters(), job.training.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(_mean(loss))
    _finish(ctx, losses)


def ddp(ctx: MemberContext) -> None:
    job = _start(ctx)
    _data_parallel(ctx, job, nn.parallel.DistributedDataParallel(TorchGPT(job)))


def fsdp2(ctx: MemberContext) -> None:
    from torch.distributed.fsdp import fully_shard

    job = _start(ctx)
    module = TorchGPT(job)
    mesh = init_device_mesh("cpu", (ctx.size,))
    for block in module.blocks.values():
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    _data_parallel(ctx, job, module)


def shard_columns_and_rows(module: TorchGPT, mesh: DeviceMesh) -> None:
    """Megatron's split of every block, by torch's DTensor."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    columns: dict[str, Any] = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    rows: dict[str, Any] = {name: RowwiseParallel() for name in ("out", "down")}
    for block in module.blocks.values():
        parallelize_module(block, mesh, columns | rows)


def dtensor(ctx: MemberContext) -> None:
    job = _start(ctx)
    module = TorchGPT(job)
    shard_columns_and_rows(module, init_device_mesh("cpu", (ctx.size,)))
    optimizer, losses = adam(module, job), []
    for step in range(job.training.steps):
        inputs, targets = batch_of(job, step)
        loss = loss_of(module(inputs), targets)
        loss.backward()
        _clip_mixed(module, job.training.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(_mean(loss))
    _finish(ctx, losses)


def _clip_mixed(module: nn.Module, most: float) -> None:
    """torch's clip_grad_norm_ refuses DTensors beside plain tensors, so the norm of whole gradients is taken here."""
    squares = 0.0
    for p in module.parameters():
        assert p.grad is not None
        whole = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
        squares += float(whole.norm() ** 2)
    factor = min(1.0, most / (squares**0.5 + 1e-6))
    for p in module.parameters():
        assert p.grad is not None
        p.grad.mul_(factor)


def pipelining(ctx: MemberContext) -> None:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    job = _start(ctx)
    each = job.model.layers // ctx.size
    module = TorchGPT(job, ctx.index * each, (ctx.index + 1) * each)
    stage = PipelineStage(module, ctx.index, ctx.size, torch.device("cpu"))
    schedule = Schedule1F1B(stage, job.plan.microbatches, loss_fn=loss_of)
    optimizer, losses = adam(module, job), []
    for step in range(job.training.steps):
        inputs, targets = batch_of(job, step)
        parts: list[Tensor] = []
        if ctx.index == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=parts)
        _clip_over_stages(module, job.training.clip)
        optimizer.step()
        optimizer.zero_grad()
        mine = torch.stack(parts).mean() if parts else torch.zeros(())
        losses.append(_mean(mine) * ctx.size)
    _finish(ctx, losses)


def _clip_over_stages(module: nn.Module, most: float) -> None:
    squares = torch.stack([p.grad.norm() ** 2 for p in module.parameters() if p.grad is not None]).sum()
    dist.all_reduce(squares)
    factor = min(1.0, most / (float(squares) ** 0.5 + 1e-6))
    for p in module.parameters():
        if p.grad is not None:
            p.grad.mul_(factor)
