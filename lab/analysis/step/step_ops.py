"""One step of a recording as columns, and which step to look at."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.prediction.replay.rows import StepRows, named
from engine.prediction.replay.steps import in_order, recorded_steps
from engine.program.kinds import names_where
from engine.program.streams import COMPUTE_STREAM
from engine.recording.tables import Recording


class NoStep(LookupError):
    """The recording has no operation of the step asked for."""


def rank_name(recording: Recording, rank: int) -> str:
    """What a recorded rank is called."""
    return named(rank, sum(like == rank for like in recording.stands_for.values()))


def step_ops(recording: Recording, step: int) -> StepRows:
    """The rows of `step`, kept until another step is asked for. Raises `NoStep` if there are none."""
    kept = _kept.get(recording)
    if kept is None or kept[0] != step:
        kept = _kept[recording] = (step, _step_ops(recording, step))
    return kept[1]


_kept: WeakKeyDictionary[Recording, tuple[int, StepRows]] = WeakKeyDictionary()


def _step_ops(recording: Recording, step: int) -> StepRows:
    rows = recording.ops_of(step)
    if not rows.num_rows:
        raise NoStep(f"step {step} was not recorded: there are steps {recorded_steps(recording)}.")
    return StepRows(in_order(rows).combine_chunks(), recording.stands_for)


def step_window(recording: Recording, step: int) -> tuple[int, int]:
    """(first start, last end) of `step` in ns, over the compute streams of all ranks, waits included."""
    return window_of(step_ops(recording, step))


def window_of(ops: StepRows) -> tuple[int, int]:
    """(first start, last end) in ns of what ranks compute; of all rows where none computes anything."""
    rows = ops.on_compute if ops.on_compute.any() else np.ones(len(ops.rank), bool)
    return int(ops.start[rows].min()), int(ops.end[rows].max())


def all_ranks_ns(ops: StepRows) -> int:
    """The step's length in ns times all ranks, those that a recorded one stands for included."""
    start, end = window_of(ops)
    return int((end - start) * sum(ops.weight[rank] for rank in ops.ranks))


def typical_step(recording: Recording) -> int | None:
    """The step to show: of those all ranks completed, the first left out as warm-up, the one of median length.

    With an even number the shorter of the two in the middle. A run cut short in its first step shows that;
    a run without operations has none. It is looked for once in a recording.
    """
    if recording not in _typical:
        _typical[recording] = _typical_step(recording)
    return _typical[recording]


_typical: WeakKeyDictionary[Recording, int | None] = WeakKeyDictionary()


def _typical_step(recording: Recording) -> int | None:
    lengths: dict[int, int] = {}
    finished: dict[int, int] = {}  # by how many ranks
    ranks: set[int] = set()
    for ops in recording.ops_batches(["step", "rank", "kind", "stream", "start_ns", "end_ns"]):
        ranks.update(pc.unique(ops["rank"]).to_pylist())
        once = pa.array(names_where(lambda kind: kind.sums_norm))
        stepped = ops.filter(pc.is_in(ops["kind"], value_set=once)).group_by("step")
        for row in stepped.aggregate([("rank", "count_distinct")]).to_pylist():
            finished[row["step"]] = row["rank_count_distinct"]
        # a step's window is that of its compute streams, see `window_of`
        spans = ops.filter(pc.equal(ops["stream"], COMPUTE_STREAM)).group_by("step")
        for row in spans.aggregate([("start_ns", "min"), ("end_ns", "max")]).to_pylist():
            lengths[row["step"]] = row["end_ns_max"] - row["start_ns_min"]
    complete = sorted(step for step, count in finished.items() if count == len(ranks))
    candidates = sorted(complete[1:] or complete, key=lambda step: (lengths.get(step, 0), step))
    return candidates[(len(candidates) - 1) // 2] if candidates else min(recorded_steps(recording), default=None)
