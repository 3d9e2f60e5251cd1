"""Every legal plan of a job on n GPUs: which shapes there are, and which variants each shape has.

What is legal says `engine.job.rules`, asked once for every tensor degree and every pipeline and not for every plan,
since its rules tie no more knobs together than these. Settings that would change nothing (ZeRO with dp=1, sequence
parallelism with tp=1) or would have nothing to order (a schedule with pp=1) are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.job.job import Job, Plan, Recompute
from engine.job.nearest import divisors
from engine.job.rules import is_legal
from engine.job.schedules import SCHEDULES

Numbers = NDArray[np.int64]
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
KNOBS = (
    "dp", "tp", "pp", "schedule", "chunks", "partition", "zero", "microbatches", "sequence_parallel", "recompute",
)  # fmt: skip
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

    @property
    def partition(self) -> tuple[int, ...] | None:
        """The one that is fixed; None where it is searched, of which the balanced one comes first."""
        return self.job.plan.partition if "partition" in self.fixed else None

    def among(self, knob: str, choices: Iterable[int]) -> list[int]:
        """The choices there are for a knob: one at most if it is fixed."""
        wanted = getattr(self.job.plan, knob)
        return [value for value in choices if knob not in self.fixed or value == wanted]


@dataclass(frozen=True)
class Shape:
    """Plans that lay the ranks and the layers out alike. partition: as in `Plan.partition`, None for the balanced."""

    dp: int
    tp: int
    pp: int
    schedule: str = "1f1b"
    chunks: int = 1
    partition: tuple[int, ...] | None = None

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

    def where(self, chosen: NDArray[np.bool_] | Numbers) -> Variants:
        return Variants(*(getattr(self, field.name)[chosen] for field in dataclasses.fields(self)))


Legal = list[tuple[Shape, Variants]]


def shapes(space: Space, ranks: int) -> Iterator[Shape]:
    """The legal shapes of exactly `ranks` ranks."""
    batch = space.job.training.batch
    for tp in space.among("tp", divisors(ranks)):
        if not any(_splits(space, tp, scatter) for scatter in _scatters(space, tp)):
            continue
        for pp in space.among("pp", divisors(ranks // tp)):
            for dp in space.among("dp", [ranks // tp // pp]):
                if batch % dp == 0:
                    yield from (Shape(dp, tp, pp, *way) for way in pipelines(space, pp, batch // dp))


def _scatters(space: Space, tp: int) -> list[bool]:
    """Sequence parallelism off, and on where there is a tensor group: without one, it changes nothing."""
    if tp == 1:
        return [False]
    return [space.job.plan.sequence_parallel] if "sequence_parallel" in space.fixed else [False, True]


@lru_cache(maxsize=4096)
def _splits(space: Space, tp: int, scatter: bool) -> bool:
    return _legal(space, tp=tp, sequence_parallel=scatter)


@lru_cache(maxsize=4096)
def pipelines(space: Space, pp: int, batch: int) -> tuple[tuple[str, int, tuple[int, ...] | None], ...]:
    """(schedule, chunks, partition) of the pipelines of `pp` ranks that a replica with so many sequences can run."""
    most = max(space.job.model.layers // pp, 1)
    return tuple(
        (schedule, chunks, space.partition)
        for schedule in ((space.job.plan.schedule,) if "schedule" in space.fixed else searched(pp))
        for chunks in space.among("chunks", range(1, most + 1))
        if SCHEDULES[schedule].fitting_chunks(chunks) == chunks and _counts(space, pp, schedule, chunks, batch)
    )


def searched(pp: int) -> tuple[str, ...]:
    """Every schedule; with one pipeline rank, where there are no turns to take, the default alone."""
    return SCHEDULES.names if pp > 1 else (Plan.schedule,)


@lru_cache(maxsize=65536)
def _counts(space: Space, pp: int, schedule: str, chunks: int, batch: int) -> tuple[int, ...]:
    """Numbers of micro-batches into which such a pipeline can cut `batch` sequences."""
    settings = {"pp": pp, "schedule": schedule, "chunks": chunks}
    cuts = space.among("microbatches", divisors(batch))
    return tuple(m for m in cuts if _legal(space, **settings, microbatches=m))


def _legal(space: Space, **settings: Any) -> bool:
    """Whether the engine's own rules take a plan with these settings, everything else being as simple as it can be."""
    plan = Plan(**{"microbatches": 1, "partition": space.partition if "pp" in settings else None, **settings})
    training = dataclasses.replace(space.job.training, batch=plan.microbatches)
    return is_legal(dataclasses.replace(space.job, plan=plan, training=training))


def microbatch_counts(space: Space, shape: Shape) -> tuple[int, ...]:
    """The legal numbers of micro-batches."""
    return _counts(space, shape.pp, shape.schedule, shape.chunks, space.job.training.batch // shape.dp)


def variants(space: Space, shape: Shape) -> Variants:
    """All legal plans of a shape."""
    plan = space.job.plan
    stages = [0] if shape.dp == 1 else space.among("zero", range(4))
    scatter = [int(value) for value in _scatters(space, shape.tp) if _splits(space, shape.tp, value)] or [0]
    again = [RECOMPUTES.index(plan.recompute)] if "recompute" in space.fixed else list(range(3))
    grid = np.meshgrid(microbatch_counts(space, shape), stages, scatter, again, indexing="ij")
    return Variants(*(np.asarray(axis.ravel(), np.int64) for axis in grid))


def job_of(space: Space, shape: Shape, plans: Variants, i: int) -> Job:
    """Plan `i` of a shape, as a job."""
    plan = dataclasses.replace(
        space.job.plan,
        **{
            "dp": shape.dp, "tp": shape.tp, "pp": shape.pp, "schedule": shape.schedule, "chunks": shape.chunks,
            "partition": shape.partition,
            "microbatches": int(plans.microbatches[i]),
            "zero": space.job.plan.zero if "zero" in space.fixed else int(plans.zero[i]),
            "sequence_parallel": (
                space.job.plan.sequence_parallel if "sequence_parallel" in space.fixed else bool(plans.sequence[i])
            ),
            "recompute": RECOMPUTES[plans.recompute[i]],
        },
    )  # fmt: skip
    return dataclasses.replace(space.job, plan=plan)


def split(job: Job) -> tuple[Space, Shape, Variants]:
    """One job as a space, a shape and variants of one plan each; the inverse of `job_of`."""
    plan = job.plan
    shape = Shape(plan.dp, plan.tp, plan.pp, plan.schedule, plan.chunks, plan.partition)
    columns = (plan.microbatches, job.effective_zero, int(job.scatters_sequence), RECOMPUTES.index(plan.recompute))
    return Space(job, frozenset(KNOBS)), shape, Variants(*(np.array([value], np.int64) for value in columns))


def walked(m: int, pp: int, most: int = 5) -> tuple[int, ...]:
    """The numbers of micro-batches to look at for m of them: m itself, at most `most` rounds of the pipeline, or else
    two and three rounds and what is left of m: every further round is like the last one."""
    over = m % pp
    return (m,) if m <= most * pp else (2 * pp + over, 3 * pp + over)
