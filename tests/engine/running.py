"""Runs a job on real processes and hands back what the tests look at."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from engine.execution.reference import reference_path
from engine.execution.session import PRELOAD, choose_backend, members
from engine.job.job import Job
from engine.job.rules import check
from engine.prediction.peak_memory import predicted_memory
from engine.processes.launch import launch
from engine.program.checks.check import check_program
from engine.program.compile import compile_job
from engine.program.program import Program
from engine.recording.live_files import read_live
from engine.recording.tables import CATEGORIES

RELATIVE = 1e-5  # fp32 parity, DESIGN: losses and weights
_REFERENCES = tempfile.TemporaryDirectory(prefix="references-")  # one-process runs: jobs with the same model share one


@dataclass(frozen=True)
class Trained:
    """Losses and norms by step, the reference's, the worst weight difference, and the recorded rows.

    Without a reference its lists are empty and the difference is NaN, so that `assert_parity` fails.
    """

    job: Job
    losses: list[float]
    norms: list[float]
    reference_losses: list[float]
    reference_norms: list[float]
    weights_relative: float
    rss: dict[int, int]
    ops: pa.Table
    memory: pa.Table

    def assert_parity(self) -> None:
        assert len(self.losses) == self.job.training.steps, (self.job, self.losses)
        for mine, alone in zip(self.losses, self.reference_losses, strict=True):
            assert abs(mine - alone) <= RELATIVE * abs(alone), (self.job, self.losses, self.reference_losses)
        for mine, alone in zip(self.norms, self.reference_norms, strict=True):
            assert abs(mine - alone) <= RELATIVE * 10 * abs(alone), (
                self.job,
                self.norms,
                self.reference_norms,
            )
        assert self.weights_relative <= RELATIVE, (self.job, self.weights_relative)


def assert_ledger_as_predicted(run: Trained) -> None:
    """Every rank held what was predicted, category by category and in all, and gave back what was temporary."""
    for predicted in predicted_memory(run.job):
        held, peaks, total = dict.fromkeys(CATEGORIES, 0), dict.fromkeys(CATEGORIES, 0), 0
        for row in run.memory.to_pylist():
            if row["rank"] == predicted["rank"]:
                held[row["category"]] = row["bytes"]
                peaks[row["category"]] = max(peaks[row["category"]], row["bytes"])
                total = max(total, sum(held.values()))
        assert total == predicted["total_peak"]
        for category in ("params", "grads", "optimizer"):
            assert held[category] == predicted[category]
        for category in ("activations", "gathered", "buffers"):
            assert (peaks[category], held[category]) == (predicted[f"{category}_peak"], 0), category


def one_process_of(job: Job) -> Path:
    """Where the one-process run that `train` compares `job` with is kept while the tests run."""
    return reference_path(job, Path(_REFERENCES.name))


def train(
    *, parity: bool = True, reference: Path | None = None, program: Program | None = None, **options: Any
) -> Trained:
    """Runs the job given by `options` to its end; reference: what to compare with in place of one process."""
    job = Job.from_options(**options)
    check(job)
    check_program(program or compile_job(job), job)
    events: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        (run_dir / "live").mkdir()
        compared = (reference or one_process_of(job)) if parity else None
        launch(
            members(
                job,
                run_dir,
                backend=choose_backend(job.world_size, 0),
                reference=compared,
                program=program,
                floor=False,
            ),
            log_path=run_dir / "log.txt",
            run_json=None,
            on_event=lambda _, event: events[event["event"]].append(event),
            preload=PRELOAD,
        )
        ops, memory = read_live(run_dir)
    steps = sorted((e for e in events["step"] if e["rank"] == 0), key=lambda e: e["step"])
    alone = events["reference"][0] if parity else {"losses": [], "grad_norms": []}
    apart = [e["param_max_rel_diff"] for e in events["finished"]] if parity else [math.nan]
    return Trained(
        job, [e["loss"] for e in steps], [e["grad_norm"] for e in steps], alone["losses"], alone["grad_norms"],
        float(np.max(apart)),  # NaN if one is
        {e["rank"]: e["rss_bytes"] for e in events["finished"]}, ops, memory,
    )  # fmt: skip
