"""Finds the templates of computations by executing each distinct unit once, at full size, on the meta device.

Meta tensors have shapes and no data, so the runtime, the layers and the optimizer run as they are, whatever the size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from engine.communication.comm import Comm, Done, Group, Handle
from engine.execution.runtime import Runtime
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.family import family_of
from engine.model.params import Param
from engine.model.unit_kinds import kind_of
from engine.prediction.op_templates.templates import SELF, WAIT, Piece, Template, Templates, unit_job
from engine.program.compile import compile_lanes
from engine.program.program import Action, Program
from engine.program.schedules.one_f_one_b import gpipe
from engine.program.schedules.zero_bubble import zb_h1
from engine.program.streams import COMPUTE_STREAM
from engine.recording.ledger import Ledger
from engine.recording.recorder import Recorder
from engine.recording.tables import Op

META = torch.device("meta")


class SilentComm(Comm):
    """Writes down every collective as `Comm` does, and moves nothing. Remembers the axis of each row."""

    def __init__(self, rank: int, groups: dict[str, Group], backend: str) -> None:
        super().__init__(rank, backend, groups, Recorder(rank))
        self.axes: dict[int, str] = {}

    def _start(self, axis: str, collective: Callable[..., dist.Work | None], *tensors_and_op: Any) -> dist.Work:
        return Done()

    def _row(self, op: str, axis: str, tensor: Tensor, stream: str, action: Action | None) -> Op:
        row = super()._row(op, axis, tensor, stream, action)
        self.axes[row.seq] = axis
        return row

    def copy(self, out: Tensor, source: Tensor, action: Action) -> Handle:
        """As `Comm.copy`; the row's axis is `SELF`."""
        handle = super().copy(out, source, action)
        self.axes[handle.row.seq] = SELF
        return handle


def _empty(param: Param) -> Tensor:
    return torch.empty(param.shape, device=META)


def execute_units(job: Job, backend: str, split: bool = False) -> Templates:
    """(action kind, unit kind) → template of every computation of a job of
    `engine.prediction.op_templates.templates.unit_job`.

    split: with backwards in two parts.
    """
    return _executed(job, backend, split)[0]


def saved_bytes(job: Job) -> dict[str, int]:
    """Unit kind → bytes that autograd keeps of one of it for the backward of a micro-batch.

    Found by executing the units: an answer independent of `engine.prediction.formulas.activation_bytes`.
    """
    return dict(_executed(unit_job(job), "gloo", False)[1])


def left_bytes(job: Job) -> dict[str, int]:
    """Unit kind → bytes that the input part of one of it leaves for its weight part, found in the same way."""
    return dict(_executed(unit_job(job), "gloo", True)[2])


@lru_cache(maxsize=512)
def _executed(job: Job, backend: str, split: bool) -> tuple[Templates, dict[str, int], dict[str, int]]:
    """The templates of the job's units, the bytes they save, and those they leave for weight parts."""
    comm = SilentComm(0, _groups(job, 0), backend)
    program = compile_lanes(job, (zb_h1 if split else gpipe)(1, 1, 1))
    only_units = Program(tuple(tuple(a for a in lane if a.kind.acts_on == "unit") for lane in program.lanes))
    runtime = Runtime(job, only_units, 0, comm, META, Ledger(0), _empty)
    family = family_of(job.model)
    data = torch.zeros(family.data_shape(job), dtype=getattr(torch, family.data_type), device=META)
    runtime.execute([data])
    rows = comm.recorder.rows
    templates = {
        (row.kind, kind_of(row.unit).name): _template(row, rows, comm.axes)
        for row in rows
        if row.stream == COMPUTE_STREAM and row.kind != WAIT[0].kind
    }
    return templates, runtime.saved_bytes, runtime.left_bytes


def execute_alone(job: Job, pp_rank: int, actions: Sequence[Action], backend: str) -> Templates:
    """(action kind, bucket) → template of actions on a pipeline rank of a job of
    `engine.prediction.op_templates.templates.step_job`, done one after the other and nothing else.
    """
    rank = mesh_of(job).rank(pp=pp_rank)
    comm = SilentComm(rank, _groups(job, rank), backend)
    program = Program(tuple(tuple(actions) if z == pp_rank else () for z in range(job.plan.pp)))
    Runtime(job, program, rank, comm, META, Ledger(rank), _empty).execute([])
    rows = comm.recorder.rows
    own = [row for row in rows if row.parent < 0 and row.kind != WAIT[0].kind]
    return {(row.kind, row.unit): _template(row, rows, comm.axes) for row in own}


def _groups(job: Job, rank: int) -> dict[str, Group]:
    mesh = mesh_of(job)
    return {axis: Group(axis, tuple(mesh.group(axis, rank)), None) for axis in mesh.axes}


def _template(own: Op, rows: list[Op], axes: dict[int, str]) -> Template:
    children = [row for row in rows if row.parent == own.seq]
    return tuple(_piece(row, axes.get(row.seq, "")) for row in (own, *children))


def _piece(row: Op, axis: str) -> Piece:
    name = row.name if row.parent >= 0 else ""
    return Piece(
        stream=row.stream, kind=row.kind, name=name, op=row.op, axis=axis, group=row.group, cost=replace(row.cost)
    )
