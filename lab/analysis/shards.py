"""Which part of each matrix every rank keeps, asked of the code that cuts them up when a run starts.

Tensor parallelism: `engine.model.initialization.local_slice` cuts a tensor that holds its own positions. ZeRO: the
buckets of `engine.execution.flat_bucket` are built without memory, on the meta device, and say where each parameter
lies and which slice is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Literal

from engine.job.errors import JobRefused, Unknown, told
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.loading import import_whole
from engine.model.buckets import Bucket, buckets_of_pp_rank
from engine.model.params import Param, unit_params
from engine.model.units import units_of_pp_rank

State = Literal["params", "grads", "optimizer"]
SHARDED_FROM: dict[State, int] = {"optimizer": 1, "grads": 2, "params": 3}
"""The ZeRO stage from on which a rank keeps a slice only (Rajbhandari et al. 2020, section 5)."""


@dataclass(frozen=True)
class Area:
    """Rows [top, bottom) and columns [left, right) of a matrix."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def size(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)


@dataclass(frozen=True)
class Matrix:
    """A weight with at least two dims, as a matrix: leading dims are rows, the last one columns.

    tensor: of each tensor rank the areas it holds. offset: where its local part begins in the bucket's flat buffer.
    """

    param: Param
    rows: int
    columns: int
    tensor: tuple[tuple[Area, ...], ...]
    offset: int
    local: int

    @property
    def name(self) -> str:
        return self.param.name

    @property
    def cut(self) -> str:
        """How tensor parallelism cuts it."""
        if "tp" not in self.param.placements or len(self.tensor) == 1:
            return "whole"
        return "columns" if self.param.placements["tp"] == len(self.param.shape) - 1 else "rows"


@dataclass(frozen=True)
class Layout:
    """One unit's matrices, and the flat buffer they lie in on each rank.

    pp_rank: the pipeline rank that holds it. own: of each data rank its slice of the buffer. params: (name, start,
    size) of everything in the buffer.
    """

    unit: str
    pp_rank: int
    bucket: Bucket
    matrices: tuple[Matrix, ...]
    params: tuple[tuple[str, int, int], ...]
    own: tuple[tuple[int, int], ...]


@lru_cache(maxsize=64)
def layout(job: Job, unit: str) -> Layout:
    """Where `unit` lies. Raises `JobRefused` if the job has no such unit."""
    every = [name for pp_rank in range(job.plan.pp) for name in units_of_pp_rank(job, pp_rank)]
    if unit not in every:
        shown = every if len(every) <= 6 else [*every[:4], "…", every[-1]]
        raise JobRefused(f"there is no unit {told(unit)} in this job: use one of {', '.join(dict.fromkeys(shown))}.")
    home = next(pp_rank for pp_rank in range(job.plan.pp) if unit in units_of_pp_rank(job, pp_rank))
    bucket = next(b for b in buckets_of_pp_rank(job, home) if unit in b.units)
    places, own = _flat(job, bucket, home)
    starts = {name: (start, size) for name, start, size in places}
    params = [p for p in unit_params(job.model, job.plan.tp, unit) if len(p.shape) > 1 and not p.name.endswith("bias")]
    matrices = tuple(_matrix(param, job.plan.tp, *starts[param.name]) for param in params)
    return Layout(unit, home, bucket, matrices, places, own)


def _flat(
    job: Job, bucket: Bucket, pp_rank: int
) -> tuple[tuple[tuple[str, int, int], ...], tuple[tuple[int, int], ...]]:
    """Where each parameter lies in the buffer, and each data rank's own slice of it."""
    import_whole("engine.execution.flat_bucket")
    import torch

    from engine.execution.flat_bucket import FlatBucket
    from engine.recording.ledger import Ledger

    def nothing(param: Param) -> torch.Tensor:
        return torch.empty(param.shape, device="meta")

    meta, mesh = torch.device("meta"), mesh_of(job)
    at = [mesh.coordinate(mesh.rank(dp=dp, pp=pp_rank)) for dp in range(job.plan.dp)]
    made = [FlatBucket(job, bucket, place, meta, Ledger(0), nothing) for place in at]
    places = tuple((name, int(p.storage_offset()), int(p.numel())) for name, p in made[0].params.items())
    return places, tuple((one.own.start, one.own.stop) for one in made)


def _matrix(param: Param, tp: int, offset: int, size: int) -> Matrix:
    rows, columns = prod(param.shape[:-1]), param.shape[-1]
    tensor = tuple(_tensor_areas(param, tp, i) for i in range(tp))
    return Matrix(param, rows, columns, tensor, offset, size)


def _tensor_areas(param: Param, tp: int, index: int) -> tuple[Area, ...]:
    """What tensor rank `index` holds of the matrix, found by slicing a tensor of positions along the split dim."""
    import_whole("engine.model.initialization")
    import torch

    from engine.model.initialization import local_slice

    rows, columns = prod(param.shape[:-1]), param.shape[-1]
    for axis in param.placements:
        if axis != "tp":
            raise Unknown("axis along which cut matrices are drawn", axis, ["tp"])
    if "tp" not in param.placements:
        return (Area(0, rows, 0, columns),)
    along = param.placements["tp"]
    shape = [n if dim == along else 1 for dim, n in enumerate(param.shape)]
    positions = torch.arange(param.shape[along]).view(shape).expand(param.shape)  # one number each, no memory
    line = tuple(slice(None) if dim == along else 0 for dim in range(len(param.shape)))
    held = local_slice(param, positions, {"tp": tp}, {"tp": index})[line]
    first, last = int(held[0]), int(held[-1]) + 1
    if along == len(param.shape) - 1:
        return (Area(0, rows, first, last),)
    inner = prod(param.shape[along + 1 : -1])
    block = param.shape[along] * inner
    return tuple(
        Area(b * block + first * inner, b * block + last * inner, 0, columns) for b in range(prod(param.shape[:along]))
    )


def local_areas(matrix: Matrix, index: int, start: int, stop: int) -> list[Area]:
    """The areas of the whole matrix that flat range [start, stop) of the buffer of tensor rank `index` holds."""
    held = matrix.tensor[index]
    width = held[0].right - held[0].left
    first, last = max(start - matrix.offset, 0), min(stop - matrix.offset, matrix.local)
    found: list[Area] = []
    before = 0  # local rows in the areas before
    for area in held:
        rows = area.bottom - area.top
        for piece in _pieces(first - before * width, last - before * width, rows, width):
            shifted = (piece.top + area.top, piece.bottom + area.top, piece.left + area.left, piece.right + area.left)
            found.append(Area(*shifted))
        before += rows
    return found


def _pieces(first: int, last: int, rows: int, width: int) -> list[Area]:
    """Positions [first, last) of a matrix in row-major order as areas: a row's end, whole rows, a row's start."""
    first, last = max(first, 0), min(last, rows * width)
    if first >= last:
        return []
    top, left = divmod(first, width)
    bottom, right = divmod(last, width)
    if top == bottom:
        return [Area(top, top + 1, left, right)]
    found = [Area(top, top + 1, left, width)] if left else []
    full = top + bool(left)
    if bottom > full:
        found.append(Area(full, bottom, 0, width))
    return [*found, Area(bottom, bottom + 1, 0, right)] if right else found
