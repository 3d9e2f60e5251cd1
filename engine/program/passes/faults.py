"""Faults of the bug zoo (`engine.job.bugs`) that are actions too few or too many: (job, program) → the faulty program.

They come after the checks, which would refuse most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from engine.job.axes import dividing
from engine.job.job import Job
from engine.model.buckets import buckets_of_pp_rank
from engine.model.units import needs
from engine.program.kinds import Kind
from engine.program.passes.reductions import bound_in_flight, reduce_after_backward
from engine.program.program import Action, Program


def norm_gradients_not_summed(job: Job, program: Program) -> Program:
    return _without(program, lambda a: _sums(a) and a.axis in dividing("tensors"))


def tied_copies_not_summed(job: Job, program: Program) -> Program:
    return _without(program, lambda a: a.kind is Kind.REDUCE and a.axis == "tie")


def no_data_reduction(job: Job, program: Program) -> Program:
    return _without(program, lambda a: _sums(a) and a.axis in dividing("batch"))


def bucket_not_gathered(job: Job, program: Program) -> Program:
    """It is the one that is gathered last."""
    return Program(tuple(_without_last_gather(lane) for lane in program.lanes))


def reduced_every_microbatch(job: Job, program: Program) -> Program:
    """Sums are still right: what is summed already stands aside (`engine.execution.faults`) while more is added."""
    once = _without(program, lambda a: _sums(a) and a.axis != "tie")
    return Program(tuple(_reduced_often(job, pp_rank, lane) for pp_rank, lane in enumerate(once.lanes)))


def _reduced_often(job: Job, pp_rank: int, lane: Sequence[Action]) -> tuple[Action, ...]:
    buckets, used = buckets_of_pp_rank(job, pp_rank), partial(needs, job.model)
    often = reduce_after_backward(lane, buckets, used, zero=2)  # which reduces after every micro-batch
    axes = [axis for bucket in buckets for axis in bucket.sum_axes]
    return tuple(bound_in_flight(often, axes, most=0))  # and none while the next backward adds to the same buffer


def _sums(a: Action) -> bool:
    return a.kind in (Kind.REDUCE, Kind.WAIT)


def _without(program: Program, which: Callable[[Action], bool]) -> Program:
    return Program(tuple(tuple(a for a in lane if not which(a)) for lane in program.lanes))


def _without_last_gather(lane: tuple[Action, ...]) -> tuple[Action, ...]:
    at = max(i for i, a in enumerate(lane) if a.kind is Kind.GATHER)
    return lane[:at] + lane[at + 1 :]
