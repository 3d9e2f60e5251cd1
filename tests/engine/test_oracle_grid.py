"""Same losses, norms and weights as torch's own three parallelisms together, ZeRO-3 × tensor × pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.execution.one_process import keep_reference
from engine.job.job import Job
from engine.model.params import unit_params
from engine.model.units import compute_units
from engine.processes.launch import Member, launch
from tests.engine.running import train
from tests.engine.torch_grid import named_as_ours

pytestmark = pytest.mark.usefixtures("torchs_own_loaded")
JOB: dict[str, Any] = {
    "dp": 2, "tp": 2, "pp": 2, "zero": 3, "layers": 4, "hidden": 32, "seq": 16, "batch": 16, "microbatches": 4,
    "steps": 4, "clip": 0.3,
}  # fmt: skip


@pytest.fixture(scope="module")
def torchs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What torch found, as a file of the kind that a run is compared with."""
    folder, job = tmp_path_factory.mktemp("torch"), Job.from_options(**JOB)
    found: list[dict[str, Any]] = []
    launch(
        [
            Member(f"rank {r}", "tests.engine.torch_grid:train_on_a_grid", {"job": JOB, "folder": str(folder)})
            for r in range(job.world_size)
        ],
        log_path=folder / "log.txt",
        run_json=None,
        on_event=lambda _, event: found.append(event),
        hang_seconds=60.0,
    )
    assert len(found) == job.world_size and all(event == found[0] for event in found), "a loss is the whole job's"
    stages = [torch.load(folder / f"stage{s}.pt") for s in range(job.plan.pp)]
    weights = named_as_ours(job, {name: weight for stage in stages for name, weight in stage.items()})
    wanted = {p.name: p.shape for unit in compute_units(job.model) for p in unit_params(job.model, 1, unit)}
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == wanted
    made = {name: found[0][name] for name in ("losses", "grad_norms")}
    keep_reference(folder / "torch.pt", made | {"moved": True, "weights": weights, "samples": {}})
    return folder / "torch.pt"


@pytest.mark.parametrize("more", [{}, {"sequence_parallel": True, "recompute": "full"}, {"zero": 1}], ids=str)
def test_eight_ranks_train_what_torchs_dtensor_fsdp2_and_pipelining_train(torchs: Path, more: dict[str, Any]) -> None:
    run = train(reference=torchs, **JOB | more)
    run.assert_parity()
    assert run.reference_losses[-1] < run.reference_losses[0], "and it learns"
    assert max(run.reference_norms) > JOB["clip"], "and gradients are clipped"


def test_one_weight_that_is_off_is_seen(torchs: Path, tmp_path: Path) -> None:
    found = torch.load(torchs)
    found["weights"]["block3.down.weight"][5, 7] += 1e-4
    keep_reference(tmp_path / "off.pt", found)
    with pytest.raises(AssertionError):
        train(reference=tmp_path / "off.pt", **JOB).assert_parity()
