"""What the engine's own work costs on one core: small jobs run for real, and every row of them timed.

Calibrating on rows as the recorder writes them, rather than on operators alone, brings in what surrounds the operators
in a run: autograd's bookkeeping, gradients added in place, the optimizer on flat buffers, and the Python between rows.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from engine.calibration.fitting import Event
from engine.cluster.collectives import full_bytes
from engine.communication.comm import Comm, Group
from engine.execution.runtime import Runtime
from engine.job.axes import AXES
from engine.job.job import Job
from engine.model.initialization import seeded
from engine.prediction.replay.op_seconds import COSTS
from engine.program.compile import compile_job
from engine.program.kinds import kind_of_row
from engine.program.program import Action
from engine.recording.ledger import Ledger
from engine.recording.recorder import Recorder
from engine.recording.tables import Op

SHAPES = ((16, 8, 1), (32, 32, 2), (64, 64, 2), (64, 64, 4), (128, 128, 2), (256, 128, 2), (512, 64, 2))
SEVERAL: dict[str, Any] = {"microbatches": 2, "layers": 2}  # rows of one kind follow each other, as they do in a run
HEADS = 4
FEWEST = 4  # steps of which a quartile is taken

Cost = tuple[int, ...]


class Timed:
    """A job that this process takes part in, step by step, and the seconds of its core that each step took.

    groups: what `engine.communication.comm.Comm` needs of axes with several ranks; the other axes have one. entering:
    what the worker does before each action, since that too is time of the host.
    """

    def __init__(self, job: Job, rank: int, groups: Sequence[Group], entering: Callable[[Action], None]) -> None:
        alone = {axis: Group(axis, (rank,), None) for axis in AXES.names}
        self.comm = Comm(rank, "gloo", alone | {group.axis: group for group in groups}, Recorder(rank))
        cpu = torch.device("cpu")
        self.runtime = Runtime(job, compile_job(job), rank, self.comm, cpu, Ledger(rank), seeded(job.training.seed))
        shape = (job.model.seq + 1, job.microbatch_size)
        self.tokens = [torch.randint(job.model.vocab, shape) for _ in range(job.plan.microbatches)]
        self.entering, self.number = entering, 0

    def step(self) -> tuple[list[Op], float]:
        """(the step's rows, seconds of processor time that the main thread took for all of it)."""
        start = time.thread_time()
        self.runtime.run_step(self.tokens, self.number, self.entering)
        seconds = time.thread_time() - start
        self.runtime.ledger.flush(self.number)
        self.number += 1
        return self.comm.recorder.flush(self.number), seconds

    def steps(self, patience: float) -> list[tuple[list[Op], float]]:
        """Steps for `patience` seconds, after one that warms up and counts the costs."""
        self.step()
        end, found = time.perf_counter() + patience, [self.step()]
        while time.perf_counter() < end or len(found) < FEWEST:
            found.append(self.step())
        return found


def shaped(hidden: int, seq: int, batch: int, **more: Any) -> Job:
    """A small job; batch: sequences in a micro-batch of one rank."""
    whole = batch * SEVERAL["microbatches"] * more.get("dp", 1)
    return Job.from_options(hidden=hidden, heads=HEADS, seq=seq, batch=whole, **SEVERAL, **more)


def row_events(passes: Iterable[Sequence[list[Op]]]) -> list[Event]:
    """An event of the kind "row" for each sort of computation, with the middle one of its passes' means.

    Means, because a step is a sum of rows: what now and then takes longer takes its share of every step.
    """
    found: dict[Cost, list[float]] = defaultdict(list)
    for steps in passes:
        taken: dict[Cost, list[float]] = defaultdict(list)
        for op in (op for ops in steps for op in ops if _computes(op)):
            taken[tuple(getattr(op.cost, name) for name in COSTS)].append(op.cpu_ns / 1e9)
        for cost, seconds in taken.items():
            found[cost].append(statistics.fmean(seconds))
    return [
        {"kind": "row", **dict(zip(COSTS, cost, strict=True)), "seconds": statistics.median(seconds)}
        for cost, seconds in found.items()
    ]


def between_rows(steps: Iterable[tuple[list[Op], float]]) -> float:
    """Seconds of the host from one row to the next: the step's processor time less that of its computations."""
    spare = []
    for ops, whole in steps:
        computing = sum(op.cpu_ns for op in ops if _computes(op)) / 1e9
        spare.append(max(0.0, whole - computing) / sum(op.parent < 0 for op in ops))
    return statistics.median(spare)


def collective_events(steps: Iterable[list[Op]], ranks: int) -> list[Event]:
    """An event of the kind "traffic" for each sort of collective inside a layer or the optimizer step.

    From when the rank got there until it went on, so the usual wait for the others is in it: between ranks that share
    cores that is part of what a collective costs.
    """
    taken: dict[tuple[str, int], list[float]] = defaultdict(list)
    for op in (op for ops in steps for op in ops if op.parent >= 0):
        size = int(full_bytes(op.op, ranks, op.cost.logical_bytes))
        taken[op.op, size].append((op.end_ns - op.start_ns) / 1e9)
    return [
        {"kind": "traffic", "op": op, "ranks": ranks, "bytes": size, "seconds": statistics.fmean(seconds)}
        for (op, size), seconds in taken.items()
    ]


def _computes(op: Op) -> bool:
    kind = kind_of_row(op.kind)
    return kind is not None and kind.computes


def lower_quartile(taken: Sequence[float]) -> float:
    """What disturbs only ever makes it slower."""
    return statistics.quantiles(taken, n=4)[0]
