"""The newest whole step of a run, with what was moved and held up to its end: from live lines, or from the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from engine.recording.columns import schema, table_of
from engine.recording.tables import CATEGORIES, MemoryRow, MetricRow, Recorded, Recording
from lab.live.files import Line, step_recording

TOTAL = "total"
"""The key, beside those of `CATEGORIES`, of the most bytes of all categories together at any one time."""
ByRank = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class Newest:
    """recording: of this step alone. memory_now, memory_peak: rank → category → bytes, at its end and until then.

    bytes_so_far: axis → logical bytes of each recorded rank, in the order of ranks. pace: seconds from the end of one
    step to that of the next, on average, the first step left out; None until there are two.
    """

    step: int
    recording: Recording
    memory_now: ByRank
    memory_peak: ByRank
    bytes_so_far: Mapping[str, tuple[int, ...]]
    pace: float | None


def from_lines(lines: Sequence[Line], metrics: Sequence[MetricRow]) -> Newest:
    """lines: of one step, a line a rank in their order."""
    totals = [line.totals for line in lines]
    last = totals[0]
    axes = list(dict.fromkeys(axis for one in totals for axis in one.moved))
    return Newest(
        step=last.step,
        recording=step_recording(lines, metrics),
        memory_now={rank: one.held for rank, one in enumerate(totals)},
        memory_peak={rank: {**one.peak, TOTAL: one.peak_total} for rank, one in enumerate(totals)},
        bytes_so_far={axis: tuple(one.moved.get(axis, 0) for one in totals) for axis in axes},
        pace=(last.end_ns - last.first_end_ns) / 1e9 / last.step if last.step else None,
    )


def from_tables(recording: Recording, total_peaks: Mapping[int, int]) -> Newest | None:
    """Of a run that has ended; None if it completed no step. What single ranks did beyond that step counts as well.

    total_peaks: of each rank, from the summary: to find them again takes longer than all the rest.
    """
    if not recording.metrics.num_rows:
        return None
    step = int(pc.max(recording.metrics["step"]).as_py())
    now, peak = _memory(recording)
    for rank, most in total_peaks.items():
        peak[rank][TOTAL] = most
    return Newest(step, _only(step, recording), now, peak, _moved(recording), None)


def _only(step: int, recording: Recording) -> Recording:
    """The step as a recording of its own, whose memory begins with what was held before, as that of a live one does."""
    ops, begins = recording.ops_of(step), {}
    for row in ops.group_by("rank").aggregate([("start_ns", "min")]).to_pylist():
        begins[row["rank"]] = row["start_ns_min"]
    before: dict[tuple[int, str], int] = {}
    rows = []
    for batch in recording.memory_batches():
        earlier = batch.filter(pc.less(batch["step"], step)).group_by(["rank", "category"], use_threads=False)
        for row in earlier.aggregate([("bytes", "last")]).to_pylist():
            before[row["rank"], row["category"]] = row["bytes_last"]
        rows.append(batch.filter(pc.equal(batch["step"], step)))
    held = [MemoryRow(step, rank, begins.get(rank, 0), name, size) for (rank, name), size in before.items() if size]
    memory = pa.concat_tables([table_of("memory", held), *(part.cast(schema("memory")) for part in rows)])
    metrics = recording.metrics.filter(pc.equal(recording.metrics["step"], step))
    return Recorded(ops, memory, metrics, recording.stands_for)


def _memory(recording: Recording) -> tuple[dict[int, dict[str, int]], dict[int, dict[str, int]]]:
    """What each rank held last, and the most of each category."""
    now: dict[int, dict[str, int]] = {}
    peak: dict[int, dict[str, int]] = {}
    for batch in recording.memory_batches():
        held = batch.group_by(["rank", "category"], use_threads=False).aggregate([("bytes", "last"), ("bytes", "max")])
        for row in held.to_pylist():
            rank, category = row["rank"], row["category"]
            now.setdefault(rank, dict.fromkeys(CATEGORIES, 0))[category] = row["bytes_last"]
            most = peak.setdefault(rank, dict.fromkeys(CATEGORIES, 0))
            most[category] = max(most[category], row["bytes_max"])
    return now, peak


def _moved(recording: Recording) -> dict[str, tuple[int, ...]]:
    parts = []
    for ops in recording.ops_batches(["rank", "group", "logical_bytes"]):
        sums = ops.group_by(["rank", "group"]).aggregate([("logical_bytes", "sum")])
        parts.append(sums.rename_columns(["rank", "group", "bytes"]))
    if not parts:
        return {}
    whole = pa.concat_tables(parts).group_by(["rank", "group"]).aggregate([("bytes", "sum")]).to_pylist()
    found = {(row["group"], row["rank"]): row["bytes_sum"] for row in whole}
    ranks = sorted({rank for _, rank in found})
    axes = sorted({axis for axis, rank in found if axis})
    return {axis: tuple(found.get((axis, rank), 0) for rank in ranks) for axis in axes}
