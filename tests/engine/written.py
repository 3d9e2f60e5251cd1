"""Recordings without processes, and made-up costs to replay them at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from engine.job.job import Job
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.replay.rows import StepRows
from engine.prediction.replay.timing import Seconds
from engine.program.program import Program
from engine.recording.columns import table_of
from engine.recording.tables import Op, Recorded, Recording, op_from


def op(**values: Any) -> Op:
    return op_from({"seq": 0, "stream": "compute", "kind": "wait", "name": ""} | values)


def recording_of(ops: Iterable[Op], stands_for: Mapping[int, int] | None = None) -> Recorded:
    return Recorded(table_of("ops", list(ops)), table_of("memory", []), table_of("metrics", []), stands_for or {})


def written(job: Job, program: Program | None = None, ranks: Iterable[int] | None = None) -> Recording:
    """The recording of one step of every rank, or of `ranks`."""
    return rehearse(job, program, None if ranks is None else tuple(ranks))


def uniform(
    forward: float = 1, backward: float = 2, step: float = 0, **together: float
) -> Callable[[StepRows], Seconds]:
    """Costs in seconds: of a block's forward and backward (each part of a split one takes half), and of every
    communication on a stream, by its name."""

    def costs(rows: StepRows) -> Seconds:
        own = np.zeros(len(rows))
        blocks = np.array([str(unit).startswith("block") for unit in rows.table["unit"].to_pylist()])
        halves = {"backward_input": backward / 2, "backward_weight": backward / 2}
        for kind, seconds in {"forward": forward, "backward": backward, "norm": step, **halves}.items():
            own[rows.among("kind", kind) & (blocks | (kind == "norm"))] = seconds
        talk = np.zeros(len(rows))
        for stream, seconds in together.items():
            talk[rows.among("stream", stream)] = seconds
        return Seconds(own, talk)

    return costs
