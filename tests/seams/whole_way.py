"""What a newcomer must go through to be one of us: real processes, proof, predictions, replay, words and pictures."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.compute as pc
from rich.console import Console

import lab
from engine.cluster.cluster import load_cluster
from engine.job.registry import Registry, plug_in, unplug
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.replay.replay import replay
from engine.recording.tables import Recorded, Recording
from lab.analysis import memory_peaks
from lab.cli.terminal.run import show
from lab.facade import Run
from lab.views import figures

TIMES = ("start_ns", "end_ns", "cpu_ns", "step")


@contextmanager
def plugged_in(module: str, *registries: Registry[Any]) -> Iterator[None]:
    """`module` adds to the registries; afterwards neither they nor new processes know of it. Once a process."""
    before = [registry.names for registry in registries]
    plug_in(module)
    yield
    unplug(module)
    for registry, names in zip(registries, before, strict=True):
        for name in set(registry.names) - set(names):
            registry.remove(name)


def run_and_prove(**options: Any) -> Run:
    """Runs a job on real processes. Proves: equal to one process, memory and bytes as predicted, rehearsed alike."""
    run = lab.run(**options)
    assert run.summary["parity"]["passed"] is True
    assert run.summary["memory"]["per_rank"] == run.summary["memory"]["predicted_per_rank"]
    assert all(row["logical_bytes"] == row["predicted_bytes"] for row in run.summary["communication"])
    recorded = run.recording
    last = max(recorded.ops["step"].to_pylist())
    measured = Recorded(recorded.ops.filter(pc.equal(recorded.ops["step"], last)), recorded.memory, recorded.metrics)
    foretold, cluster = rehearse(run.job), load_cluster("toy-2x4")
    for name in foretold.ops.column_names:
        if name not in TIMES:
            assert in_order(measured, name) == in_order(foretold, name), name
    spans = [replay(measured, run.job, cluster, step=last), replay(foretold, run.job, cluster)]
    for name in ("start_ns", "end_ns"):
        assert in_order(spans[0], name) == in_order(spans[1], name), name
    assert memory_peaks(spans[0]) == memory_peaks(foretold) == memory_peaks(recorded)
    return run


def in_order(recording: Recording, name: str) -> list[Any]:
    values: list[Any] = recording.ops.sort_by([("rank", "ascending"), ("seq", "ascending")])[name].to_pylist()
    return values


def printed(run: Run) -> str:
    """What the terminal shows of a run."""
    written = io.StringIO()
    show(run, Console(file=written, width=120))
    return written.getvalue()


def pictures(run: Run) -> dict[str, Any]:
    """Every figure of one run, by name."""
    return {
        "timeline": run.timeline(),
        "grid": run.grid(),
        "memory": run.memory(),
        "communication": run.communication(),
        "bubble": figures.bubble(run),
        "schedules": figures.schedules(run),
        "bubble curve": figures.bubble_curve(run, run.job),
        "shards": figures.shards(run),
        "memory by ZeRO stage": figures.memory_by_zero(run.job),
    }


def counted(recording: Recording, column: str) -> Counter[str]:
    return Counter(recording.ops[column].to_pylist())
