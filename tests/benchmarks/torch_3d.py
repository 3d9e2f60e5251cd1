"""The same 3D job in torch's own DTensor, pipelining and all-reduce, started by torchrun: what a script costs.

    torchrun --nproc-per-node 8 -m tests.benchmarks.torch_3d --dp 2 --tp 2 --pp 2

Rank 0 prints {"ready_s", "steps"}: seconds until all ranks were connected and the model built, and those of each step.
"""

from __future__ import annotations

import argparse
import json
import time

STARTED = time.perf_counter()

import torch  # noqa: E402  the clock above counts the import
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.pipelining import PipelineStage, Schedule1F1B  # noqa: E402

from engine.job.job import Job  # noqa: E402
from tests.engine.oracles import shard_columns_and_rows  # noqa: E402
from tests.engine.torch_gpt import TorchGPT, adam, batch_of, loss_of  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    for axis in ("dp", "tp", "pp"):
        parser.add_argument(f"--{axis}", type=int, default=2)
    degrees = parser.parse_args()
    job = Job.from_options(dp=degrees.dp, tp=degrees.tp, pp=degrees.pp)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (degrees.pp, degrees.dp, degrees.tp), mesh_dim_names=("pp", "dp", "tp"))
    stage, each = mesh["pp"].get_local_rank(), job.model.layers // degrees.pp
    module = TorchGPT(job, stage * each, (stage + 1) * each)
    shard_columns_and_rows(module, mesh["tp"])
    pipeline = PipelineStage(module, stage, degrees.pp, torch.device("cpu"), group=mesh["pp"].get_group())
    schedule = Schedule1F1B(pipeline, job.plan.microbatches, loss_fn=loss_of)
    optimizer, replica, data = adam(module, job), mesh["dp"].get_local_rank(), mesh["dp"].get_group()
    ready, steps = time.perf_counter() - STARTED, []
    for step in range(job.training.steps):
        began = time.perf_counter()
        inputs, targets = (x.chunk(degrees.dp)[replica] for x in batch_of(job, step))
        if stage == 0:
            schedule.step(inputs)
        else:
            schedule.step(target=targets, losses=[])
        for p in module.parameters():
            assert p.grad is not None
            dist.all_reduce(p.grad.to_local() if hasattr(p.grad, "to_local") else p.grad, group=data)
        optimizer.step()
        optimizer.zero_grad()
        steps.append(time.perf_counter() - began)
    dist.barrier()
    if dist.get_rank() == 0:
        print(json.dumps({"ready_s": ready, "steps": steps}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
