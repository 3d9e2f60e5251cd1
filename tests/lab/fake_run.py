"""A run without a store or processes: what `lab.store.stored_run.Run` offers to figures and reports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from engine.cluster.cluster import load_cluster
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.prediction.simulate import simulate
from engine.recording.tables import Recording
from lab import analysis
from tests.lab.synthetic import LIFELIKE, Costs, synthetic

STEP_KEYS = ("step", "loss", "grad_norm", "seconds", "tokens_per_second")


@dataclass(frozen=True)
class FakeInfo:
    """The part of `run.json` a report reads."""

    command: tuple[str, ...] = ("lab", "run", "--dp", "2")
    created: str = "2026-11-30T10:00:00.000+00:00"
    environment: dict[str, Any] = field(default_factory=lambda: {"python": "3.11.7", "torch": "2.13", "cpu_count": 2})
    backend: str = "gloo"
    device: str = "cpu"
    backend_reason: str = "no GPU on this machine"
    resident_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class FakeRun:
    """What `lab.store.stored_run.Run` offers to a report and to figures."""

    job: Job
    recording: Recording
    summary: dict[str, Any]
    id: str = "20261130-100000-dp2tp2pp2-zero1-abcd"
    status: str = "finished"
    message: str = ""
    info: FakeInfo = field(default_factory=FakeInfo)


def fake_run(job: Job, costs: Costs = LIFELIKE, steps: int = 3, **changes: Any) -> FakeRun:
    """A finished run with the summary its recording gives."""
    recording = synthetic(job, costs, steps)
    step = analysis.typical_step(recording)
    known = step is not None
    peaks: list[Any] = analysis.memory_peaks(recording) if known else []
    sent: list[Any] = analysis.communication(recording, mesh_of(job), step) if known else []
    summary = {
        "world_size": job.world_size,
        "backend": "gloo",
        "device": "cpu",
        "schedule": job.plan.schedule,
        "parity": {
            "passed": True,
            "state": "equal",
            "first_step_out": None,
            "floor": {"loss": 9.6e-7, "grad_norm": 4e-7, "param": 1.2e-7},
            "loss_max_abs_diff": 4.8e-7,
            "grad_norm_max_rel_diff": 2.1e-7,
            "param_max_abs_diff": 6e-8,
            "limits": {
                "loss": {"step": 1, "off_by": 8.7e-8, "limit": 1e-5, "floor": 1.7e-7},
                "grad_norm": {"step": 2, "off_by": 2.1e-7, "limit": 1e-5, "floor": 4e-7},
                "weights": {
                    "step": 2,
                    "off_by": 6e-8,
                    "limit": 1e-5,
                    "floor": 1.2e-7,
                    "unit": "block1",
                    "tensor": "up.bias",
                    "rank": 0,
                },
            },
        },
        "steps": [{k: row[k] for k in STEP_KEYS} for row in recording.metrics.to_pylist()],
        "bubble": {
            "measured": analysis.bubble(recording, job, step) if known else None,
            "replayed": 0.2,
            "formula": analysis.bubble_formula(job),
        },
        "overlap": analysis.overlap(recording, step) if known else {},
        "memory": {
            "per_rank": peaks,
            "predicted_per_rank": [{**row, "total_peak": row["total_peak"] - 2000} for row in peaks],
        },
        "communication": [{**row, "predicted_bytes": row["logical_bytes"]} for row in sent],
        "time_to_ranks_ready_s": 0.3,
        "wall_s": 1.2,
    }
    return replace(FakeRun(job, recording, summary), **changes)


def simulated_run(job: Job) -> FakeRun:
    """A job on the described cluster that it names, with the summary of a simulation."""
    recording = simulate(job, load_cluster(job.hardware.cluster))
    made = fake_run(Job())
    step = analysis.typical_step(recording)
    assert step is not None
    peaks: list[Any] = analysis.memory_peaks(recording)
    sent: list[Any] = analysis.communication(recording, mesh_of(job), step)
    summary = made.summary | {
        "cluster": job.hardware.cluster,
        "mfu": 0.25,
        "parity": {"passed": None},
        "steps": [
            {key: row[key] if row[key] == row[key] else None for key in STEP_KEYS}
            for row in recording.metrics.to_pylist()
        ],
        "bubble": {
            "measured": None,
            "replayed": analysis.bubble(recording, job, step),
            "formula": analysis.bubble_formula(job),
        },
        "overlap": analysis.overlap(recording, step),
        "memory": {"per_rank": peaks, "predicted_per_rank": []},
        "communication": [{**row, "predicted_bytes": row["logical_bytes"]} for row in sent],
    }
    info = FakeInfo(backend="nccl", device="H100", backend_reason=f"as cluster {job.hardware.cluster} is described")
    return replace(made, job=job, recording=recording, summary=summary, status="simulated", info=info)
