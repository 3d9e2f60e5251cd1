"""Every legal plan of a job on n GPUs: which shapes there are, and which variants each shape has.

What is legal says `engine.job.rules.check`; the same rules are written here as ranges, so that no plan has to be tried.
Settings that would change nothing (ZeRO with dp=1, sequence parallelism with tp=1) are left out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job, Recompute
from engine.job.rules import MAX_LAYER_RUNS

Numbers = NDArray[np.int64]
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
SEARCHED: tuple[str, ...] = ("1f1b", "interleaved")
"""Schedules that a search tries. Others of `pipeline_time.PIPELINE_SECONDS` can be asked for by name."""
KNOBS = ("dp", "tp", "pp", "schedule", "chunks", "zero", "microbatches", "sequence_parallel", "recompute")
"""Options that a search tries unless they are fixed; all others are as the job has them."""


@dataclass(frozen=True)
class Space:
    """What is searched: the plans of `job`, in which the knobs in `fixed` keep their values."""

    job: Job
    fixed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, job: Job, fixed: Mapping[str, object]) -> Space:
        """Raises `JobRefused` for an unknown name or a value of the wrong type."""
        return cls(Job.from_options(job, **fixed), frozenset(fixed))

    def among(self, knob: str, choices: Iterable[int]) -> list[int]:
        """The choices there are for a knob: one at most if it is fixed."""
        wanted = getattr(self.job.plan, knob)
        return [value for value in choices if knob not in self.fixed or value == wanted]


@dataclass(frozen=True)
class Shape:
    """Plans that lay the ranks and the layers out alike."""

    dp: int
    tp: int
    pp: int
    schedule: str = "1f1b"
    chunks: int = 1

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp


@dataclass(frozen=True, eq=False)
class Variants:
    """The plans of one shape, as columns: micro-batches, ZeRO stage, sequence parallelism, index in RECOMPUTES."""

    microbatches: Numbers
    zero: Numbers
    sequence: Numbers
    recompute: Numbers

    def __len__(self) -> int:
        return len(self.zero)

    def where(self, chosen: NDArray[np.bool_]) -> Variants:
        return Variants(*(getattr(self, field.name)[chosen] for field in dataclasses.fields(self)))


def divisors(n: int) -> list[int]:
    """Of n ≥ 1, in rising order."""
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def shapes(space: Space, ranks: int) -> Iterator[Shape]:
    """The legal shapes of exactly `ranks` ranks."""
    model, batch = space.job.model, space.job.training.batch
    for tp in space.among("tp", divisors(ranks)):
        if model.heads % tp or (_demands_scatter(space) and model.seq % tp):
            continue
        for pp in space.among("pp", divisors(ranks // tp)):
            for dp in space.among("dp", [ranks // tp // pp]):
                if batch % dp == 0:
                    yield from _pipelines(space, dp, tp, pp)


def _demands_scatter(space: Space) -> bool:
    return "sequence_parallel" in space.fixed and space.job.plan.sequence_parallel


def _pipelines(space: Space, dp: int, tp: int, pp: int) -> Iterator[Shape]:
    plan, layers = space.job.plan, space.job.model.layers
    for schedule in (plan.schedule,) if "schedule" in space.fixed else SEARCHED:
        several = schedule == "interleaved"
        if several and pp == 1:
            continue
        for chunks in space.among("chunks", range(2, layers // pp + 1) if several else [1]):
            fits = plan.partition is None or (len(plan.partition) == pp * chunks and sum(plan.partition) == layers)
            if pp * chunks <= layers and fits:
                shape = Shape(dp, tp, pp, schedule, chunks)
                if microbatch_counts(space, shape):
                    yield shape


def microbatch_counts(space: Space, shape: Shape) -> list[int]:
    """The legal numbers of micro-batches."""
    job = space.job
    legal = [m for m in divisors(job.training.batch // shape.dp) if job.model.layers * m <= MAX_LAYER_RUNS]
    return space.among("microbatches", [m for m in legal if shape.schedule != "interleaved" or m % shape.pp == 0])


def variants(space: Space, shape: Shape) -> Variants:
    """All legal plans of a shape."""
    plan = space.job.plan
    stages = [0] if shape.dp == 1 else space.among("zero", range(4))
    scatter = [0]
    if shape.tp > 1:
        legal = (0, 1) if space.job.model.seq % shape.tp == 0 else (0,)
        scatter = [int(plan.sequence_parallel)] if "sequence_parallel" in space.fixed else list(legal)
    again = [RECOMPUTES.index(plan.recompute)] if "recompute" in space.fixed else list(range(3))
    grid = np.meshgrid(microbatch_counts(space, shape), stages, scatter, again, indexing="ij")
    return Variants(*(np.asarray(axis.ravel(), np.int64) for axis in grid))


def job_of(space: Space, shape: Shape, many: Variants, i: int) -> Job:
    """Plan `i` of a shape, as a job."""
    plan = dataclasses.replace(
        space.job.plan,
        **{
            "dp": shape.dp, "tp": shape.tp, "pp": shape.pp, "schedule": shape.schedule, "chunks": shape.chunks,
            "microbatches": int(many.microbatches[i]),
            "zero": space.job.plan.zero if "zero" in space.fixed else int(many.zero[i]),
            "sequence_parallel": (
                space.job.plan.sequence_parallel if "sequence_parallel" in space.fixed else bool(many.sequence[i])
            ),
            "recompute": RECOMPUTES[many.recompute[i]],
        },
    )  # fmt: skip
    return dataclasses.replace(space.job, plan=plan)


def split(job: Job) -> tuple[Space, Shape, Variants]:
    """One job as a space, a shape and variants of one plan each; the inverse of `job_of`."""
    plan = job.plan
    shape = Shape(plan.dp, plan.tp, plan.pp, plan.schedule, plan.chunks)
    columns = (plan.microbatches, job.effective_zero, int(job.scatters_sequence), RECOMPUTES.index(plan.recompute))
    return Space(job, frozenset(KNOBS)), shape, Variants(*(np.array([value], np.int64) for value in columns))
