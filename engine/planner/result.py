"""What a search of the planner hands back: the plans that fit, the best first, and why the others lose."""

from __future__ import annotations

from dataclasses import dataclass

from engine.job.job import Job
from engine.planner.table import Dropped


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan that fits. memory: bytes by category on the pipeline rank that holds most. components: seconds by PARTS of
    the estimate. refined: whether `seconds` is the replay's, and `bytes` the exact peak of
    `engine.prediction.peak_memory`. idle_gpus: of those that were asked for, how many it does not use; `mfu` is of
    those that it does."""

    job: Job
    seconds: float
    mfu: float
    tokens_per_second: float
    memory: dict[str, int]
    bytes: int
    components: dict[str, float]
    refined: bool = False
    idle_gpus: int = 0

    @property
    def estimate(self) -> float:
        """Seconds before any replay."""
        return sum(self.components.values())

    @property
    def bubble(self) -> float:
        """Part of the step that the busiest pipeline rank idles because of the schedule or unequal stages."""
        return self.components["bubble"] / self.estimate


@dataclass(frozen=True, eq=False)
class Search:
    """What a search found.

    ranked: the best plans that fit, those replayed before the others, each fastest first. nearest: by knob, the plan
    that differs from the winner in it and as little as possible else; it uses as many GPUs as any plan can, and has the
    balanced partition. legal,
    fitting: how many plans of so many GPUs there were. limit_bytes: memory of a device, less the reserve. terms: the
    convention in which model state is counted. estimated: of how many of those that fit the step was estimated; all
    others take longer by a bound, but for `unsure` of them, whose bound is below the fastest estimate. idle_gpus: of
    the winner. full: where that leaves GPUs idle, the fastest plan that uses as many as any can. untried_partitions: of
    how many plans no other partition was tried, though by their bounds one might be faster than the winner.
    """

    ranked: tuple[Candidate, ...]
    nearest: dict[str, Candidate]
    dropped: tuple[Dropped, ...]
    legal: int
    fitting: int
    gpus: int
    idle_gpus: int
    limit_bytes: int
    terms: str
    sentences: tuple[str, ...] = ()
    estimated: int = 0
    unsure: int = 0
    full: Candidate | None = None
    untried_partitions: int = 0

    @property
    def winner(self) -> Candidate:
        return self.ranked[0]
