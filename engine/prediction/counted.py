"""What a family gives no closed form for, found by executing its units on meta tensors: exact, for a little time.

Its functions import what they need, torch or pyarrow: whoever has a closed form is not to wait for them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.job.job import Job
from engine.loading import import_whole
from engine.model.params import unit_size
from engine.model.unit_kinds import kind_of
from engine.model.units import compute_units, needs
from engine.program.compile import compile_job
from engine.program.kinds import Kind

if TYPE_CHECKING:
    from engine.prediction.op_templates.templates import Templates

BACKEND = "gloo"  # whose wire bytes are of no interest here


def parameters(job: Job) -> int:
    """Elements of all parameters of the model, each once."""
    units = dict.fromkeys(owner for unit in compute_units(job.model) for owner in needs(job.model, unit))
    return sum(unit_size(job.model, {}, unit) for unit in units)


def activation_bytes(job: Job, unit: str) -> int:
    """Bytes that one unit saves for the backward of one micro-batch, on one rank."""
    import_whole("engine.prediction.op_templates.meta_templates")
    from engine.prediction.op_templates.meta_templates import saved_bytes

    return saved_bytes(job)[kind_of(unit).name]


def held_for_weight_bytes(job: Job, unit: str) -> int:
    """Bytes that the input part of a unit's split backward leaves for its weight part, on one rank."""
    import_whole("engine.prediction.op_templates.meta_templates")
    from engine.prediction.op_templates.meta_templates import left_bytes

    return left_bytes(job).get(kind_of(unit).name, 0)  # a source's backward is not split


def model_flops(job: Job) -> int:
    """FLOPs of a step of the whole job, without recomputation: those of the operators of its units."""
    from engine.prediction.op_templates.template_cache import unit_templates

    plain = replace(job, plan=replace(job.plan, tp=1, recompute="none", sequence_parallel=False))
    found = unit_templates(plain, BACKEND)
    kinds = [kind_of(unit).name for unit in compute_units(job.model)]
    one = sum(found[kind.name, name][0].cost.flops for name in kinds for kind in (Kind.FORWARD, Kind.BACKWARD))
    return one * job.plan.microbatches * job.plan.replicas


def tensor_bytes(job: Job, pp_rank: int) -> dict[tuple[str, str], int]:
    """Logical bytes of the collectives inside layers, by (axis, operation), counted in a pipeline rank's program."""
    from engine.prediction.op_templates.template_cache import unit_templates

    total: Counter[tuple[str, str]] = Counter()
    actions = [a for a in compile_job(job).lanes[pp_rank] if a.kind.acts_on == "unit"]
    known: Templates = {}
    for split in {a.kind is Kind.BACKWARD_INPUT for a in actions}:
        known = unit_templates(job, BACKEND, split=split) | known
    for a in actions:
        for piece in known[a.kind.name, kind_of(a.unit).name][1:]:
            total[piece.group, piece.op] += piece.cost.logical_bytes
    return dict(total)
