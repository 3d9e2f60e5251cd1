"""The tables of a run: written in batches, read in parts, and whole whoever else is at work in the folder."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from engine.job.job import Job
from engine.recording import live_files, parquet
from engine.recording.live_files import append_live, live_path, read_live
from engine.recording.parquet import finalize, read_recording
from engine.recording.running_totals import NOTHING, after
from engine.recording.tables import MemoryRow, Op, Recording
from lab import analysis
from lab.facade import load
from lab.store.stored_run import RunCorrupt, Store
from tests.lab.synthetic import LIFELIKE, synthetic

JOB, STEPS = Job.from_options(dp=2, pp=2, zero=1), 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of six steps that has not been finalised."""
    made = synthetic(JOB, LIFELIKE, STEPS)
    (tmp_path / "live").mkdir()
    ops, memory = list(made.op_rows()), [MemoryRow(**row) for row in made.memory.to_pylist()]
    for rank in range(JOB.world_size):
        totals = NOTHING
        for step in range(STEPS):

            def mine(row: Op | MemoryRow, rank: int = rank, step: int = step) -> bool:
                return row.rank == rank and max(row.step, 0) == step

            own, held = list(filter(mine, ops)), list(filter(mine, memory))
            totals = after(totals, own, held)
            append_live(live_path(tmp_path, rank), own, held, totals)
    return tmp_path


def findings(found: Recording) -> tuple[object, ...]:
    step = analysis.typical_step(found)
    assert step is not None
    return step, analysis.bubble(found, JOB, step), analysis.memory_peaks(found), analysis.recorded_steps(found)


def test_tables_are_written_some_steps_at_a_time_and_each_step_in_one_piece(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_files, "BATCH_ROWS", 300)
    ops, memory = read_live(folder)
    finalize(folder)
    with pq.ParquetFile(folder / "ops.parquet") as file:
        groups = [set(file.read_row_group(g)["step"].to_pylist()) for g in range(file.num_row_groups)]
    assert len(groups) >= 3 and sum(map(len, groups)) == STEPS == len(set.union(*groups))
    found = read_recording(folder)
    assert found.ops.equals(ops) and found.memory.equals(memory)


def test_tables_read_in_parts_say_the_same_as_whole_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = findings(read_recording(folder))
    monkeypatch.setattr(live_files, "BATCH_ROWS", 300)
    finalize(folder)
    found = read_recording(folder)
    assert findings(found) == live == findings(synthetic(JOB, LIFELIKE, STEPS))
    assert "ops" not in vars(found) and "memory" not in vars(found)  # never read as a whole


def test_one_step_is_read_without_the_others(folder: Path) -> None:
    whole = read_recording(folder).ops
    finalize(folder)
    assert read_recording(folder).ops_of(2).equals(whole.filter(pc.equal(whole["step"], 2)))
    assert read_recording(folder).ops_of(99).num_rows == 0


def test_a_reader_that_meets_the_end_of_a_run_gets_all_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_recording(folder).ops.num_rows

    def too_late(run_dir: Path) -> tuple[object, object]:
        finalize(run_dir)
        return read_live(run_dir)  # of a folder that is gone: empty tables

    monkeypatch.setattr(parquet, "read_live", too_late)
    assert read_recording(folder).ops.num_rows == rows > 0


def test_a_file_that_vanishes_while_it_is_read_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(run_dir: Path) -> None:
        finalize(run_dir)
        raise FileNotFoundError(run_dir / "live" / "rank000.jsonl")

    monkeypatch.setattr(parquet, "read_live", vanish)
    assert read_recording(folder).ops.num_rows > 0


def test_a_last_line_cut_short_by_a_kill_is_left_out(folder: Path) -> None:
    path = live_path(folder, 1)
    path.write_text(path.read_text()[:-40])
    steps = analysis.step_ops(read_recording(folder), STEPS - 1).ranks
    assert steps == [0, 2, 3] and analysis.step_ops(read_recording(folder), STEPS - 2).ranks == [0, 1, 2, 3]


def test_damage_in_the_frame_of_a_table_is_told_when_the_run_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    info = store.create(JOB, ())
    finalize(store.folder(info.id))
    (store.folder(info.id) / "memory.parquet").write_bytes(b"PAR1" + bytes(50) + b"PAR1")
    with pytest.raises(RunCorrupt, match=r"memory\.parquet cannot be read"):
        load(info.id, store).recording  # noqa: B018
