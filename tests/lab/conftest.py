"""A pretended launch: no process, rows of a synthetic recording, any ending. And a small disk."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.job.job import Job
from engine.processes.launch import Member
from engine.recording.live_files import append_live, live_path
from engine.recording.running_totals import NOTHING, Totals, after
from engine.recording.tables import MemoryRow, op_from
from tests.allowed import not_allowed
from tests.lab.synthetic import LIFELIKE, synthetic

OnEvent = Callable[[str, dict[str, Any]], None]


class PretendedLaunch:
    """Stands in for `engine.processes.launch.launch`.

    ending: raised after `until` steps. reference_off_by, floor_off_by: what the one-process losses differ by, relative,
    and those with another order of sums from them.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.warmed = 0
        self.ending: BaseException | None = None
        self.until = 99
        self.reference_off_by = 0.0
        self.weights_off_by = 0.0
        self.floor_off_by = 0.0
        self.last_rank_tells: dict[str, float] | None = None  # of the difference of its weights
        self.reference_silent = False
        self.before_step: Callable[[Path, int], None] = lambda folder, step: None

    def warm(self, preload: Sequence[str]) -> None:
        self.warmed += 1

    def __call__(
        self,
        members: Sequence[Member],
        *,
        log_path: Path,
        run_json: Path | None,
        status_path: Path | None = None,
        on_event: OnEvent,
        cancel: threading.Event | None = None,
        preload: Sequence[str],
    ) -> None:
        self.calls += 1
        job, parity = members[0].payload["job"], members[0].payload["reference"] is not None
        ranks, folder = range(job.world_size), log_path.parent
        totals: dict[int, Totals] = {}
        log_path.write_text("")
        for rank in ranks:
            on_event(f"rank {rank}", {"event": "ready", "rank": rank})
        for step in range(job.training.steps):
            if step >= self.until and self.ending is not None:
                raise self.ending
            self.before_step(folder, step)
            self._step(job, folder, step, on_event, totals)
        if parity and not self.reference_silent:
            losses = [_loss(step) * (1 + self.reference_off_by) for step in range(job.training.steps)]
            alone = {"losses": losses, "grad_norms": [1.0] * len(losses), "moved": True}
            on_event("rank 0", {"event": "reference", **alone})
            other = alone | {"losses": [loss * (1 + self.floor_off_by) for loss in losses]}
            on_event("floor", {"event": "floor", **other, **_weights(self.floor_off_by, len(losses))})
        apart = _weights(self.weights_off_by, job.training.steps) | {"moved": True} if parity else {}
        for rank in ranks:
            told = apart if rank < len(ranks) - 1 or self.last_rank_tells is None else self.last_rank_tells
            on_event(f"rank {rank}", {"event": "finished", "rank": rank, "rss_bytes": 10**8, **told})

    def _step(self, job: Job, folder: Path, step: int, on_event: OnEvent, totals: dict[int, Totals]) -> None:
        recording = synthetic(job, LIFELIKE, job.training.steps)
        ops = [op_from(row) for row in recording.ops.to_pylist()]
        memory = [MemoryRow(**row) for row in recording.memory.to_pylist()]
        mine = [row for row in ops if row.step == step]
        for rank in range(job.world_size):
            held = [row for row in memory if row.rank == rank and row.step in (step, step - 1 if step == 0 else step)]
            own = [row for row in mine if row.rank == rank]
            totals[rank] = after(totals.get(rank, NOTHING), own, held)
            append_live(live_path(folder, rank), own, held, totals[rank])
            start, end = min(row.start_ns for row in mine), max(row.end_ns for row in mine)
            report = {"event": "step", "rank": rank, "step": step, "loss": _loss(step), "grad_norm": 1.0}
            # each rank a little later than the one before
            on_event(f"rank {rank}", report | {"start_ns": start + rank, "end_ns": end + rank})


def _weights(off: float, steps: int) -> dict[str, Any]:
    return {"param_max_abs_diff": off, "param_max_rel_diff": off, "weights": {"block1.up.bias": [off] * steps}}


def _loss(step: int) -> float:
    return 5.5 - 0.25 * step


def pretend(patch: pytest.MonkeyPatch, folder: Path) -> PretendedLaunch:
    """Replaces launching, and puts the store in a folder."""
    made = PretendedLaunch()
    patch.setattr("engine.processes.launch.launch", made)
    patch.setattr("engine.processes.launch.warm", made.warm)
    patch.setenv("SHARDLAB_RUNS", str(folder / "runs"))
    patch.chdir(folder)
    return made


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PretendedLaunch:
    """Replaces launching, and puts the store in a fresh folder."""
    return pretend(monkeypatch, tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes. Only the system's administrator may mount one, and no other way fills a disk for real
    without harm to everybody else on it.
    """
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        not_allowed("mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
