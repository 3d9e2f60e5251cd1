"""Rehearsal: the recording of any job without its processes, however large the model.

Each distinct unit is executed once, at full size, on the meta device (`engine.prediction.op_templates.meta_templates`);
the rows found there are stamped out for every action of the program. A rehearsed recording holds the operations that
the real run would record, in the same order, without times: a replay gives it those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.units import tied_pp_ranks
from engine.prediction.formulas import state_bytes
from engine.prediction.peak_memory import lane_changes
from engine.prediction.rehearsal.lane_memory import memory_of, shared_memory
from engine.prediction.rehearsal.lane_rows import Layout, layout_of, ops_of, shared_columns
from engine.prediction.rehearsal.script import script_of
from engine.program.compile import compile_job
from engine.program.dependencies import waits
from engine.program.program import Program
from engine.recording.columns import schema
from engine.recording.tables import Recorded


def rehearse(
    job: Job,
    program: Program | None = None,
    ranks: Sequence[int] | None = None,
    backend: str = "gloo",
    cache_dir: Path | None = None,
    *,
    with_memory: bool = True,
) -> Recorded:
    """One step of `job`, as `ranks` (default: all) would record it.

    program: of a schedule written by hand; it must have been checked. backend: whose wire bytes are counted.
    cache_dir: a folder to keep templates in, see `engine.prediction.op_templates.template_cache`. with_memory: or else
    the memory table is empty, which saves half of the time where nobody looks at it.
    """
    program, mesh = program or compile_job(job), mesh_of(job)
    chosen = range(mesh.size) if ranks is None else ranks
    lanes: dict[int, _Lane] = {}
    ops, memory, tie = [], [], tied_pp_ranks(job)
    for rank in chosen:
        pp_rank = mesh.coordinate(rank).pp
        if pp_rank not in lanes:
            lanes[pp_rank] = _lane(job, program, pp_rank, backend, cache_dir, with_memory)
        lane = lanes[pp_rank]
        ops.append(ops_of(lane.layout, lane.ops, rank, mesh, tie))
        if lane.memory is not None:
            memory.append(memory_of(lane.memory, rank))
    held = pa.concat_tables([schema("memory").empty_table(), *memory])
    return Recorded(pa.concat_tables(ops), held, schema("metrics").empty_table())


@dataclass(frozen=True, eq=False)
class _Lane:
    """What all ranks of one pipeline rank have in common: the columns of their rows and of their memory."""

    layout: Layout
    ops: dict[str, pa.Array]
    memory: dict[str, pa.Array] | None


def _lane(job: Job, program: Program, pp_rank: int, backend: str, cache_dir: Path | None, with_memory: bool) -> _Lane:
    known = waits(job, program, pp_rank)
    layout = layout_of(script_of(job, program.lanes[pp_rank], known, pp_rank, backend, cache_dir))
    columns = shared_columns(layout)
    if not with_memory:
        return _Lane(layout, columns, None)
    changes = lane_changes(job, program, pp_rank, known)
    return _Lane(layout, columns, shared_memory(layout, state_bytes(job, pp_rank), changes))
