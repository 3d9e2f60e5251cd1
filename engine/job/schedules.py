"""What a pipeline schedule is, and the registry of them.

A schedule is one object. Those of the engine are made in `engine.program.schedules`, a file for each family of them;
one defined anywhere else needs no more than `SCHEDULES.add(Schedule(...))` (`engine.job.registry.plug_in`). What it
leaves out is counted on its program instead (`engine.program.dryrun`), never taken from another schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from engine.job.registry import Registry


class PipelinePlan(Protocol):
    """What a schedule reads of an `engine.job.job.Plan`."""

    @property
    def pp(self) -> int: ...
    @property
    def microbatches(self) -> int: ...
    @property
    def chunks(self) -> int: ...


Order = Callable[[int, int, int], tuple[tuple[Any, ...], ...]]
"""(pipeline ranks p, micro-batches m, chunks v) → one list of stage-level `engine.program.program.Action` per rank."""


def round_robin(p: int, stage: int) -> int:
    """Stage s lives on rank s mod p."""
    return stage % p


def _always(plan: PipelinePlan) -> Iterator[str]:
    yield from ()


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """In which order each pipeline rank runs its forwards and backwards, and what is known of that order."""

    name: str
    """As in `--schedule zb-h1`."""
    label: str
    """As people write it: ZB-H1."""
    order: Order
    placement: Callable[[int, int], int] = round_robin
    """(p, virtual stage) → the pipeline rank it lives on."""
    chunks: tuple[int, int | None] = (1, 1)
    """Fewest and most model chunks a rank; None: any number from the fewest on."""
    needs_pipeline: bool = False
    """Whether it means nothing on one pipeline rank."""
    legal: Callable[[PipelinePlan], Iterator[str]] = _always
    """What else is wrong with a plan that has a legal number of ranks and chunks, in the user's words."""
    bubble: Callable[[int, int, int], Fraction | None] | None = None
    """(p, m, v) → idle ÷ total with equal stages and free communication; None where no formula is known."""
    bubble_words: str = ""
    """That formula in p, m and v, to be printed beside its value."""
    in_flight: Callable[[int, int, int, int], int] | None = None
    """(p, m, v, rank) → most micro-batch activations, each of one chunk, that the rank holds at once."""

    def __post_init__(self) -> None:
        assert bool(self.bubble) == bool(self.bubble_words), f"{self.name}: a formula comes with its words"

    def fitting_chunks(self, wished: int) -> int:
        """The number of chunks nearest to the wished one that the schedule can have."""
        least, most = self.chunks
        return max(least, wished if most is None else min(wished, most))

    def complaints(self, plan: PipelinePlan) -> Iterator[str]:
        """Why the schedule cannot run the plan."""
        if self.needs_pipeline and plan.pp == 1:
            yield f"schedule={self.name} needs a pipeline and pp=1: use pp=2 or more, or schedule=1f1b."
        yield from self._chunk_complaints(plan.chunks)
        yield from self.legal(plan)

    def _chunk_complaints(self, chunks: int) -> Iterator[str]:
        least, most = self.chunks
        if most == 1 and chunks > 1:
            several = " or ".join(one.name for one in SCHEDULES if one.chunks[1] is None)
            yield f"chunks={chunks} needs schedule={several}; schedule={self.name} has one chunk: use chunks=1."
        elif most is None and chunks < least:
            yield (
                f"schedule={self.name} needs several model chunks on each rank and chunks={chunks}:"
                f" use chunks={least} or more."
            )
        elif most is not None and not least <= chunks <= most:
            number = {2: "two", 3: "three", 4: "four"}.get(least, str(least)) if least == most else f"{least} to {most}"
            yield (
                f"schedule={self.name} runs {number} model chunks on each rank and chunks={chunks}:"
                f" use chunks={self.fitting_chunks(chunks)}."
            )


SCHEDULES: Registry[Schedule] = Registry("schedule")
