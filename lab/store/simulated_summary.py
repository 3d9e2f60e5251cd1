"""The summary of a simulated step: the keys of a run's summary, without parity, and how well the hardware is used.

Nothing is measured. Definitions, beside those of `lab.store.summary`:

- `step_seconds`: last end − first start over all ranks, the optimizer's step included.
- `mfu`: FLOPs the model needs (`engine.prediction.formulas.model_flops`: forward and backward, no recomputation) ÷
(step_seconds ×
  peak FLOP/s of all devices together, in the precision of the matrix products). `hfu`: the same with the FLOPs of the
  operators that run, recomputation included. `tflops_per_gpu`: those FLOPs ÷ step_seconds ÷ devices ÷ 1e12; Narayanan
  et al. 2021 also count recomputation.
- `fits`: whether no rank's highest total is above its device's memory; the ledger counts tensors only, so the context
  of a GPU and fragments come on top. `memory.worst`: the rank nearest to its limit (or furthest above it), and which
  category breaks it: the first, in the order of the ledger, with which the sum of the peaks is too much.
- `bubble.replayed`: idle ÷ total of the simulated step itself; `measured` is null.
- `memory.per_rank`: every rank up to `MOST_RANKS`; of more, one for each kind with how many it `stands_for`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from lab.store.summary import MEMORY_KEYS, communication, identity, plain, step_rows
from lab.verdict import NOT_COMPARED

if TYPE_CHECKING:
    from engine.cluster.cluster import Cluster
    from engine.job.job import Job
    from engine.program.program import Program
    from engine.recording.tables import Recording
    from lab.store.folder import RunInfo

MOST_RANKS = 64
"""Ranks that are listed one by one."""

Row = dict[str, Any]
_PARTS = MEMORY_KEYS[1:-1]


def summarise_simulated(
    info: RunInfo, job: Job, program: Program, recording: Recording, cluster: Cluster, wall_s: float | None = None
) -> Row:
    """The summary of a recording with one replayed step."""
    from engine.program.compile import compile_job
    from lab import analysis

    step = analysis.typical_step(recording)
    assert step is not None, "a replay holds its step"
    steps = step_rows(recording)
    formula = analysis.bubble_formula(job) if program == compile_job(job) else None
    summary: Row = {
        **identity(info, job),
        "cluster": cluster.name,
        **usage(job, recording, cluster, steps[0]["seconds"]),
        "parity": NOT_COMPARED,
        "steps": steps,
        "bubble": {"measured": None, "replayed": analysis.bubble(recording, job, step), "formula": formula},
        "overlap": analysis.overlap(recording, step),
        **memory(job, recording, cluster),
        "communication": communication(job, recording, step),
        "time_to_ranks_ready_s": None,
        "wall_s": wall_s,
    }
    found: Row = plain(summary)
    return found


def usage(job: Job, recording: Recording, cluster: Cluster, seconds: float) -> Row:
    """step_seconds, mfu, hfu, tflops_per_gpu."""
    from engine.cluster.roofline import peak_flops
    from engine.prediction.formulas import model_flops

    world = job.world_size
    sharing = [cluster.ranks_on_device(rank, world) for rank in range(world)]
    precision = job.training.precision
    peak = sum(peak_flops(cluster.device_of(rank, world), precision) / n for rank, n in enumerate(sharing))
    devices = sum(1 / n for n in sharing)
    done = executed_flops(recording)
    return {
        "step_seconds": seconds,
        "mfu": model_flops(job) / (seconds * peak) if seconds else None,
        "hfu": done / (seconds * peak) if seconds else None,
        "tflops_per_gpu": done / (seconds * devices) / 1e12 if seconds else None,
    }


def executed_flops(recording: Recording) -> float:
    """FLOPs of all operators of all ranks; a recorded rank counts for all it stands for."""
    weight = Counter(recording.stands_for.values())
    rank, flops = (recording.ops[name].to_numpy() for name in ("rank", "flops"))
    per_rank = np.bincount(rank, weights=flops)  # 53 bits of a sum that may exceed 64
    return float(sum(per_rank[r] * weight.get(r, 1) for r in np.flatnonzero(per_rank).tolist()))


def memory(job: Job, recording: Recording, cluster: Cluster) -> Row:
    """fits, and the table of memory."""
    from lab import analysis

    peaks: dict[int, Row] = {row["rank"]: dict(row) for row in analysis.memory_peaks(recording)}
    like = recording.stands_for or {rank: rank for rank in peaks}
    worst = max(like, key=lambda rank: _load(peaks[like[rank]], cluster, rank, job.world_size))
    limit = cluster.device_of(worst, job.world_size).memory_bytes // cluster.ranks_on_device(worst, job.world_size)
    held = peaks[like[worst]]
    fits = held["total_peak"] <= limit
    found = {
        "rank": worst,
        "total_peak": held["total_peak"],
        "device_bytes": limit,
        "breaks": None if fits else _breaks(held, limit),
    }
    return {"fits": fits, "memory": {"per_rank": _rows(peaks, like), "predicted_per_rank": [], "worst": found}}


def _load(held: Mapping[str, Any], cluster: Cluster, rank: int, world: int) -> float:
    """What part of its share of a device's memory a rank needs."""
    limit = cluster.device_of(rank, world).memory_bytes / cluster.ranks_on_device(rank, world)
    return float(held["total_peak"] / limit)


def _breaks(held: Mapping[str, Any], limit: int) -> str:
    total = 0
    for name in _PARTS:
        total += int(held[name])
        if total > limit:
            return name.removesuffix("_peak")
    raise AssertionError("the sum of the peaks is at least the highest total")


def _rows(peaks: Mapping[int, Mapping[str, Any]], like: Mapping[int, int]) -> list[Row]:
    if len(like) <= MOST_RANKS:
        return [dict(peaks[like[rank]]) | {"rank": rank, "stands_for": 1} for rank in sorted(like)]
    count = Counter(like.values())
    return [dict(row) | {"stands_for": count[rank]} for rank, row in peaks.items()]


def replay_numbers(replay: Mapping[str, Any]) -> Row:
    """What a run's summary says of its replay, of the replay's own summary."""
    return {key: replay[key] for key in ("cluster", "step_seconds")} | {"bubble": replay["bubble"]["replayed"]}
