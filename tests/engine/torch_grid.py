"""torch's own DTensor tensor parallelism × FSDP2 × pipelining in one job: a target for `engine.processes.launch`."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from engine.job.job import Job
from engine.processes.worker_process import MemberContext
from tests.engine.oracles import shard_columns_and_rows
from tests.engine.torch_gpt import TorchGPT, adam, batch_of, loss_of


def train_on_a_grid(ctx: MemberContext) -> None:
    """Trains the job on pp × dp × tp ranks; each emits its losses and norms, and each stage leaves its weights whole.

    ctx.payload: job, and the folder for the weights, a file for each stage.
    """
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(ctx.rendezvous, ctx.size), rank=ctx.index, world_size=ctx.size)
    job = Job.from_options(**ctx.payload["job"])
    plan = job.plan
    mesh = init_device_mesh("cpu", (plan.pp, plan.dp, plan.tp), mesh_dim_names=("pp", "dp", "tp"))
    at = mesh["pp"].get_local_rank()
    module = sharded_stage(job, mesh, at)
    stage = PipelineStage(module, at, plan.pp, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = Schedule1F1B(stage, plan.microbatches, loss_fn=loss_of)
    optimizer = adam(module, job)
    losses, norms = list[float](), list[float]()
    for step in range(job.training.steps):
        inputs, targets = (x.chunk(plan.dp)[mesh["dp"].get_local_rank()] for x in batch_of(job, step))
        parts: list[Tensor] = []
        if at == 0:
            schedule.step(inputs)
        elif at == plan.pp - 1:
            schedule.step(target=targets, losses=parts)
        else:
            schedule.step()
        norms.append(clip(module, mesh["pp"], job.training.clip))
        optimizer.step()
        optimizer.zero_grad()
        mine = torch.stack(parts).mean().detach() if parts else torch.zeros(())
        dist.all_reduce(mine)
        losses.append(float(mine) / (plan.dp * plan.tp))
    weights = {name: whole(p).detach().clone() for name, p in module.named_parameters()}
    if ctx.index % (plan.dp * plan.tp) == 0:
        torch.save(weights, Path(ctx.payload["folder"]) / f"stage{at}.pt")
    dist.barrier()
    ctx.emit({"event": "trained", "losses": losses, "grad_norms": norms})


def sharded_stage(job: Job, mesh: DeviceMesh, at: int) -> TorchGPT:
    """A stage's equal share of the blocks: columns and rows over tp, then everything in shards over dp."""
    from torch.distributed.fsdp import fully_shard

    each = job.model.layers // job.plan.pp
    module = TorchGPT(job, at * each, (at + 1) * each)
    shard_columns_and_rows(module, mesh["tp"])
    for block in module.blocks.values():
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(module, mesh=mesh["dp"])
    return module


def whole(tensor: Tensor) -> Tensor:
    assert isinstance(tensor, DTensor)  # FSDP2 has made every parameter one
    found: Tensor = tensor.full_tensor()
    return found


def clip(module: TorchGPT, stages: DeviceMesh, most: float) -> float:
    """Scales the gradients and returns their norm over all stages.

    torch's clip_grad_norm_ sums over no stages and refuses tensors of different meshes.
    """
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    squares = torch.stack([whole(grad).double().norm() ** 2 for grad in grads]).sum()
    dist.all_reduce(squares, group=stages.get_group())
    norm = float(squares) ** 0.5
    for grad in grads:
        grad.mul_(min(1.0, most / (norm + 1e-6)))
    return norm


def named_as_ours(job: Job, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """All weights of a `TorchGPT` under the engine's names and in its shapes."""
    heads, width = job.model.heads, job.model.hidden // job.model.heads
    found = {
        "embedding.weight": weights["embedding.weight"], "embedding.positions": weights["positions"],
        "head.weight": weights["head.weight"], "head.norm.weight": weights["norm.weight"],
        "head.norm.bias": weights["norm.bias"],
    }  # fmt: skip
    for i in range(job.model.layers):
        mine = {k.removeprefix(f"blocks.{i}."): w for k, w in weights.items() if k.startswith(f"blocks.{i}.")}
        q, k, v = (mine[f"{part}.weight"].view(heads, width, -1) for part in "qkv")
        found[f"block{i}.qkv.weight"] = torch.stack([q, k, v])
        found[f"block{i}.qkv.bias"] = torch.stack([mine[f"{part}.bias"].view(heads, width) for part in "qkv"])
        for layer, kind in chain.from_iterable(
            ((layer, kind) for kind in ("weight", "bias")) for layer in ("out", "up", "down", "norm1", "norm2")
        ):
            found[f"block{i}.{layer}.{kind}"] = mine[f"{layer}.{kind}"]
    return found
