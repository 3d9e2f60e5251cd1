"""Same losses as torch's own DDP, FSDP2, DTensor tensor parallelism and pipelining."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.execution.session import PRELOAD
from engine.job.job import Job
from engine.processes.launch import Member, launch
from tests.engine.running import RELATIVE, train
from tests.engine.torch_gpt import TorchGPT, adam, batch_of, loss_of

pytestmark = pytest.mark.usefixtures("torchs_own_loaded")
SMALL = {"layers": 4, "hidden": 32, "seq": 32, "batch": 8, "microbatches": 4, "steps": 4}


def torch_losses(target: str, size: int, job: Job, folder: Path) -> list[float]:
    """Trains `job` with one of `tests.engine.oracles` on `size` processes."""
    found: list[list[float]] = []
    launch(
        [Member(f"rank {r}", f"tests.engine.oracles:{target}", {"job": job.options()}) for r in range(size)],
        log_path=folder / "log.txt",
        run_json=None,
        on_event=lambda _, event: found.append(event["losses"]),
        hang_seconds=30.0,
        preload=PRELOAD,
    )
    return found[0]


@lru_cache(maxsize=1)
def single_process_losses() -> list[float]:
    job = Job.from_options(**SMALL)
    module = TorchGPT(job)
    optimizer, losses = adam(module, job), []
    for step in range(job.training.steps):
        inputs, targets = batch_of(job, step)
        loss = loss_of(module(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), job.training.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def assert_same(ours: list[float], theirs: list[float]) -> None:
    assert len(ours) == len(theirs) == SMALL["steps"]
    for a, b in zip(ours, theirs, strict=True):
        assert abs(a - b) <= RELATIVE * abs(b), (ours, theirs)


def test_one_process_trains_like_plain_torch() -> None:
    assert_same(train(**SMALL).losses, single_process_losses())
    assert single_process_losses()[-1] < single_process_losses()[0], "and it learns"


@pytest.mark.parametrize(
    ("target", "plan"),
    [
        ("ddp", {"dp": 2, "microbatches": 1}),
        ("fsdp2", {"dp": 2, "microbatches": 1, "zero": 3}),
        ("dtensor", {"tp": 2}),
        ("dtensor", {"tp": 2, "sequence_parallel": True}),
        ("pipelining", {"pp": 2}),
    ],
    ids=lambda v: v if isinstance(v, str) else "-".join(f"{k}{x}" for k, x in v.items()),
)
def test_a_parallel_run_has_the_losses_of_torchs_own(target: str, plan: dict[str, Any], tmp_path: Path) -> None:
    options = SMALL | plan
    ours = train(**options).losses
    assert_same(ours, torch_losses(target, 2, Job.from_options(**options), tmp_path))
    assert_same(ours, single_process_losses())
