"""Replay: puts a recorded step on a described cluster and says when everything would happen there.

What a rank does, in which order, and what waits for what come from the recording; what each operation costs comes
from the cluster; measured times play no part. The result is a recording like any other. Not modelled: two streams
getting in each other's way on one link and, unless the cluster's devices are shared cores, communication taking time
from computing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.cluster.cluster import Cluster
from engine.job.job import Job
from engine.prediction.replay.memory import Anchored, anchored
from engine.prediction.replay.op_seconds import costs_on
from engine.prediction.replay.rows import StepRows, whole
from engine.prediction.replay.steps import step_rows, step_to_show
from engine.prediction.replay.timing import PS, Graph, Seconds, graph
from engine.recording.columns import table_of
from engine.recording.tables import MetricRow, Recorded, Recording

MOST_SECONDS = 2**62 / PS
"""Of all recorded ranks together: what the clock of a replay can count."""

Costs = Callable[[StepRows], Seconds]


def replay(
    recording: Recording,
    job: Job,
    cluster: Cluster,
    step: int | None = None,
    ranks_like: Mapping[int, int] | None = None,
) -> Recorded:
    """The recording of one step as `cluster` would carry it out.

    step: which; default: the first after the warm-up, if there are several. ranks_like: where only representatives
    are recorded, rank → the recorded rank that stands for it (see `engine.prediction.equivalent_ranks`); default: the
    recording's own. Raises `ValueError` if the step was not recorded on every rank, or if it would deadlock.
    """
    found = replay_at(recording, job, costs_on(cluster, job.world_size, job.training.precision), step, ranks_like)
    return replace(found, ops=_on_wire(found.ops, cluster.backend))


def _on_wire(ops: pa.Table, backend: str) -> pa.Table:
    """Operations with the wire bytes that the cluster's backend sends for them: see
    `engine.communication.collective_bytes.wire_bytes`.
    """
    twice = pc.and_(pc.equal(ops["op"], "reduce_scatter"), backend == "gloo")  # a whole all-reduce
    wire = pc.multiply(ops["logical_bytes"], pc.add(pc.cast(twice, pa.int64()), 1))
    return ops.set_column(ops.schema.get_field_index("wire_bytes"), ops.schema.field("wire_bytes"), wire)


def replay_at(
    recording: Recording,
    job: Job,
    costs: Costs,
    step: int | None = None,
    ranks_like: Mapping[int, int] | None = None,
) -> Recorded:
    """The same at any costs: a function from the rows of the step to their seconds."""
    step = step_to_show(recording) if step is None else step
    known = _prepared(recording, step, recording.stands_for if ranks_like is None else ranks_like)
    seconds = costs(known.rows)
    check_countable(seconds)
    times = known.graph.times(seconds)
    reached, start, end = times.reached // 1000, times.start // 1000, times.end // 1000  # ps to ns
    ops = known.rows.table
    for name, values in (("start_ns", start), ("end_ns", end), ("cpu_ns", np.zeros(len(end), np.int64))):
        ops = ops.set_column(ops.schema.get_field_index(name), ops.schema.field(name), whole(values))
    memory = known.memory.at(reached, end)
    return Recorded(ops, memory, _metrics(recording, job, step, int(end.max()) / 1e9), known.rows.stands_for)


def check_countable(seconds: Seconds) -> None:
    """Raises `ValueError` if the clock of a replay cannot count them."""
    if float(seconds.own.sum() + seconds.together.sum()) > MOST_SECONDS:
        raise ValueError("the step is more than 50 days of work for its ranks: use a smaller job, or a faster cluster.")


def _metrics(recording: Recording, job: Job, step: int, seconds: float) -> pa.Table:
    """The step's metrics with its new length; what was computed stays."""
    found = recording.metrics.filter(pc.equal(recording.metrics["step"], step)).slice(0, 1)
    row = found if found.num_rows else table_of("metrics", [MetricRow(step, *[float("nan")] * 5)])
    tokens = job.training.batch * job.model.seq
    for name, value in (("seconds", seconds), ("tokens_per_second", tokens / seconds if seconds else 0.0)):
        row = row.set_column(row.schema.get_field_index(name), row.schema.field(name), pa.array([value]))
    return row


@dataclass(frozen=True, eq=False)
class _Prepared:
    """What does not depend on costs."""

    rows: StepRows
    graph: Graph
    memory: Anchored


_known: WeakKeyDictionary[Recording, dict[tuple[int, frozenset[tuple[int, int]]], _Prepared]] = WeakKeyDictionary()


def _prepared(recording: Recording, step: int, stands_for: Mapping[int, int]) -> _Prepared:
    """Made once for each recording and step, however often a slider asks for other costs."""
    made = _known.setdefault(recording, {})
    key = (step, frozenset(stands_for.items()))
    if key not in made:
        rows = step_rows(recording, step, stands_for)
        made[key] = _Prepared(rows, graph(rows), anchored(recording.memory, rows, step))
    return made[key]
