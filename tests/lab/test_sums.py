"""Bytes held and bytes sent, against sums by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.recording.tables import MemoryRow
from lab import analysis
from tests.lab.synthetic import LIFELIKE, message, op, recording_of, synthetic

# -- memory


def held(time_ns: int, category: str, nbytes: int, rank: int = 0) -> MemoryRow:
    return MemoryRow(0, rank, time_ns, category, nbytes)


def test_the_total_peak_is_that_of_the_sum_and_not_the_sum_of_the_peaks() -> None:
    rows = [
        held(0, "params", 100),
        held(1, "activations", 70),
        held(5, "activations", 10),
        held(6, "buffers", 50),
        held(9, "buffers", 0),
        held(9, "activations", 0),
        held(10, "grads", 30),
        held(11, "grads", 20),
    ]
    assert analysis.memory_peaks(recording_of(memory=rows)) == [
        {"rank": 0, "params": 100, "grads": 20, "optimizer": 0, "activations_peak": 70, "gathered_peak": 0,
         "buffers_peak": 50, "total_peak": 170},
    ]  # fmt: skip


def test_bytes_that_move_between_categories_in_one_instant_are_not_counted_twice() -> None:
    rows = [held(0, "buffers", 80), held(5, "gathered", 80), held(5, "buffers", 0), held(9, "gathered", 0)]
    assert analysis.memory_peaks(recording_of(memory=rows))[0]["total_peak"] == 80


def test_every_rank_has_a_row_whatever_the_order_of_the_table() -> None:
    rows = [held(3, "params", 7, rank=1), held(1, "params", 5, rank=0), held(1, "params", 2, rank=1)]
    assert [(r["rank"], r["params"]) for r in analysis.memory_peaks(recording_of(memory=rows))] == [
        (0, 5),
        (1, 7),
    ]


def test_a_recording_without_memory_has_no_peaks() -> None:
    assert analysis.memory_peaks(recording_of()) == []


# -- communication


def test_communication_counts_rank_zero_of_each_axis_in_the_order_of_the_axes() -> None:
    job = Job.from_options(dp=2, tp=2, pp=2, zero=1, microbatches=4)
    rows = analysis.communication(synthetic(job, LIFELIKE), mesh_of(job), 1)
    found = {(r["axis"], r["op"]): (r["count"], r["logical_bytes"]) for r in rows}
    # 2 blocks × 2 collectives × forward and backward × 4 micro-batches of 512 bytes;
    # 4 messages of 1000 bytes each way
    assert found["tp", "all_reduce"] == (32, 32 * 512)
    assert found["pp", "send_act"] == found["pp", "recv_grad"] == (4, 4000)
    assert found["dp", "reduce_scatter"] == found["dp", "all_gather"] == (2, 16000)  # two buckets
    assert [r["axis"] for r in rows] == ["dp", "dp", "tp", "pp", "pp", "world"]


def test_an_axis_rank_zero_does_not_use_is_counted_on_the_lowest_rank_that_does() -> None:
    tie = op(rank=3, kind="reduce", stream="tie", op="all_reduce", peers=(3, 5), logical_bytes=9, wire_bytes=11)
    rows = analysis.communication(recording_of([tie, replace(tie, rank=5)]), mesh_of(Job()), 0)
    assert rows == [{"axis": "tie", "op": "all_reduce", "count": 1, "logical_bytes": 9, "wire_bytes": 11}]


def test_the_matrix_has_messages_as_sent_and_collectives_along_a_ring() -> None:
    ring = [
        op(rank=r, kind="reduce", stream="dp", op="all_reduce", peers=(0, 2, 3), logical_bytes=8) for r in (0, 2, 3)
    ]
    matrix = analysis.communication_matrix(recording_of([*ring, *message(0, 5, 40, 80)]), 0, world_size=4)
    assert {(int(i), int(j)): int(matrix[i, j]) for i, j in np.argwhere(matrix)} == {
        (0, 2): 8, (2, 3): 8, (3, 0): 8, (0, 1): 50,
    }  # fmt: skip
