"""A program beside the job it should train: what the rules of `engine.program.checks.rules` look up."""

from __future__ import annotations

from functools import cached_property

from engine.job.job import Job
from engine.model.buckets import buckets_of_pp_rank
from engine.model.units import pp_rank_of_stage, stages
from engine.program.compile import compile_job
from engine.program.dryrun import DryRun, Time, dry_run
from engine.program.kinds import KINDS, Kind
from engine.program.program import Program

Place = tuple[int, int]  # pipeline rank, position
Complaint = tuple[int, int, str]  # pipeline rank, position, what is wrong


class Case:
    """A program, its job, and what the rules look up in them."""

    def __init__(self, program: Program, job: Job) -> None:
        self.program, self.job, self.pp, self.zero = program, job, job.plan.pp, job.effective_zero
        self.stages, self.compiled = stages(job), compile_job(job)
        self.stage_of = {unit: s for s, units in enumerate(self.stages) for unit in units}
        self.pp_rank_of = [pp_rank_of_stage(job.plan, s) for s in range(len(self.stages))]
        buckets = [buckets_of_pp_rank(job, pp_rank) for pp_rank in range(self.pp)]
        self.named = [{bucket.name: bucket for bucket in mine} for mine in buckets]
        self.homes = [{unit: bucket.name for bucket in mine for unit in bucket.units} for mine in buckets]
        self.buckets = [tuple(dict.fromkeys(home.values())) for home in self.homes]  # of each pipeline rank, by name
        self.passes: dict[tuple[Kind, str, int | None], Place] = {}
        self.messages: dict[tuple[Kind, int, int], Place] = {}

    @cached_property
    def walk(self) -> DryRun:
        return dry_run(self.program)

    @cached_property
    def _ends(self) -> dict[Place, Time]:
        return {(span.pp_rank, span.position): span.end for span in self.walk.spans}

    def ready(self, place: Place | None) -> str:
        """When the action at `place` has run, in words, if the dry run got there."""
        return f" (ready at t={self._ends[place]})" if place in self._ends else ""

    def norm(self, pp_rank: int) -> int:
        """Position of the action with which a pipeline rank adds up the gradient norm."""
        return next(i for i, a in enumerate(self.program.lanes[pp_rank]) if a.kind.sums_norm)

    def gradient(self, unit: str, k: int | None) -> Kind:
        """What makes the gradient of a unit's input: its whole backward, or the input part of a split one."""
        made = (kind for kind in KINDS if kind.makes_gradient and (kind, unit, k) in self.passes)
        return next(made, Kind.BACKWARD)
