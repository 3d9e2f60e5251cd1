"""A recording of real processes on described clusters: what a replay takes from it, and what not."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from engine.cluster.cluster import load_cluster
from engine.cluster.scaled_links import scaled
from engine.job.job import Job
from engine.prediction.critical_path import critical_path
from engine.prediction.equivalent_ranks import representatives
from engine.prediction.replay.replay import replay
from engine.recording.columns import table_of
from engine.recording.tables import MetricRow, Recorded, Recording
from lab import analysis
from tests.engine.running import train
from tests.engine.written import written

OPTIONS = {"dp": 2, "tp": 2, "pp": 2, "zero": 1, "steps": 3}
JOB = Job.from_options(**OPTIONS)
TOY = load_cluster("toy-2x4")


@pytest.fixture(scope="module")
def real() -> Recording:
    trained = train(parity=False, **OPTIONS)
    metrics = [MetricRow(k, loss, 1.0, 9.0, 9.0, loss) for k, loss in enumerate(trained.losses)]
    return Recorded(trained.ops, trained.memory, table_of("metrics", metrics))


def test_measured_times_play_no_part(real: Recording) -> None:
    ops = real.ops
    rng = np.random.default_rng(0)
    for name in ("start_ns", "end_ns", "cpu_ns"):
        shuffled = pa.array(rng.permutation(ops[name].to_numpy()))
        ops = ops.set_column(ops.schema.get_field_index(name), name, shuffled)
    otherwise = Recorded(ops.take(rng.permutation(ops.num_rows)), real.memory, real.metrics)
    assert replay(real, JOB, TOY).ops.equals(replay(otherwise, JOB, TOY).ops)
    assert replay(real, JOB, TOY).ops.equals(replay(real, JOB, TOY).ops)


def test_one_step_is_replayed_with_its_loss_and_a_new_length(real: Recording) -> None:
    out = replay(real, JOB, TOY)
    row, before = out.metrics.to_pylist(), real.metrics.to_pylist()
    assert len(row) == 1 and row[0]["step"] == 1 and row[0]["loss"] == before[1]["loss"]
    assert row[0]["seconds"] == pytest.approx(analysis.step_window(out, 1)[1] / 1e9)
    assert row[0]["tokens_per_second"] * row[0]["seconds"] == pytest.approx(16 * 64)
    recorded = real.ops_of(1).sort_by([("rank", "ascending"), ("seq", "ascending")])
    changed = ["start_ns", "end_ns", "cpu_ns", "wire_bytes"]
    assert out.ops.drop_columns(changed).equals(recorded.drop_columns(changed))
    # recorded over gloo, which carries out a reduce-scatter as an all-reduce; the toy cluster's NCCL does not
    assert out.ops["wire_bytes"].equals(recorded["logical_bytes"])


def test_every_step_does_the_same(real: Recording) -> None:
    first, second = (replay(real, JOB, TOY, step).ops for step in (1, 2))
    assert first["end_ns"].equals(second["end_ns"])


def test_slower_links_make_nothing_earlier_and_faster_ranks_nothing_later(real: Recording) -> None:
    end = replay(real, JOB, TOY).ops["end_ns"].to_numpy()
    slower = scaled(TOY, inside_bandwidth=0.5, across_bandwidth=0.25)
    assert (replay(real, JOB, slower).ops["end_ns"].to_numpy() >= end).all()
    late = replay(real, JOB, replace(TOY, slow_ranks={3: 0.5})).ops["end_ns"].to_numpy()
    assert (late >= end).all() and late.max() > end.max()


def test_memory_peaks_are_those_of_the_run(real: Recording) -> None:
    assert analysis.memory_peaks(replay(real, JOB, TOY)) == analysis.memory_peaks(real)


def test_real_ranks_of_one_class_do_the_same(real: Recording) -> None:
    """The representatives' rows alone give the times that all the rows give."""
    like = dict(enumerate(representatives(JOB, TOY)))
    chosen = sorted(set(like.values()))
    rows = real.ops.filter(pa.compute.is_in(real.ops["rank"], value_set=pa.array(chosen)))
    few = replay(Recorded(rows, real.memory, real.metrics, like), JOB, TOY)
    everybody = replay(real, JOB, TOY)
    assert len(chosen) == 2 and few.stands_for == like
    for rank in range(8):
        theirs = everybody.ops.filter(pa.compute.equal(everybody.ops["rank"], rank))["end_ns"]
        mine = few.ops.filter(pa.compute.equal(few.ops["rank"], like[rank]))["end_ns"]
        assert mine.to_pylist() == theirs.to_pylist()


def test_idle_time_in_a_replay_has_causes_but_never_the_host(real: Recording) -> None:
    out = replay(real, JOB, replace(TOY, slow_ranks={3: 0.5}))
    by_cause = analysis.idle_by_cause(out, 1)
    assert all(causes["host"] == 0 for causes in by_cause.values())
    assert by_cause[0]["dependency"] > 0 and by_cause[1]["straggler"] > 0
    total = sum(sum(causes.values()) for causes in by_cause.values())
    start, end = analysis.step_window(out, 1)
    assert total / ((end - start) / 1e9 * 8) == pytest.approx(analysis.bubble(out, JOB, 1))


def test_the_measured_step_has_a_critical_path_too(real: Recording) -> None:
    found = critical_path(real)
    start, end = analysis.step_window(real, 1)
    assert found[0].start_ns == start and found[-1].end_ns == end
    assert all(a.end_ns == b.start_ns for a, b in pairwise(found))


def test_rows_written_without_processes_are_those_of_the_real_ranks(real: Recording) -> None:
    """What the other tests of replays stand on; layers' own collectives are left out, they have more kinds here."""
    for rank in range(8):
        assert _outer_rows(written(JOB), 0, rank) == _outer_rows(real, 1, rank)


def _outer_rows(recording: Recording, step: int, rank: int) -> list[tuple[object, ...]]:
    rows = {r.seq: r for r in recording.op_rows() if (r.step, r.rank) == (step, rank)}
    outer = [r for r in rows.values() if r.parent < 0 or r.stream == "world"]
    return [(r.name, r.kind, r.stream, r.peers, rows[r.ref].name if r.ref >= 0 else "") for r in outer]
