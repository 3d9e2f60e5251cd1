"""Exports as tables: the same rows and columns, read by programs that know nothing of the lab."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path

import pyarrow.parquet as pq

import lab
from engine.job.job import Job
from engine.recording.columns import schema
from engine.recording.parquet import read_recording
from engine.recording.tables import TABLES
from lab.facade import Run
from lab.views.exports import export
from tests.lab.fake_run import fake_run


def test_csv_holds_every_row_and_column_of_a_real_run(real_run: Run, tmp_path: Path) -> None:
    folder = export(real_run, "csv", tmp_path / "tables")
    assert sorted(path.name for path in folder.iterdir()) == ["memory.csv", "metrics.csv", "ops.csv", "summary.json"]
    for name, columns in ((name, schema(name).names) for name in TABLES):
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        assert header == columns
        expected = getattr(real_run.recording, name).to_pylist()
        assert len(rows) == len(expected) > 0
        for row, wanted in zip(rows, expected, strict=True):
            for text, (column, value) in zip(row, wanted.items(), strict=True):
                if column == "peers":
                    assert text == " ".join(map(str, value))
                else:
                    assert type(value)(text) == value
    assert json.loads((folder / "summary.json").read_text()) == real_run.summary


def test_parquet_is_a_recording_again(real_run: Run, tmp_path: Path) -> None:
    folder = export(real_run, "parquet", tmp_path / "tables")
    again = read_recording(folder)
    for name in ("ops", "memory", "metrics"):
        assert getattr(again, name).equals(getattr(real_run.recording, name))
    assert pq.read_schema(folder / "ops.parquet").names == schema("ops").names
    assert json.loads((folder / "summary.json").read_text())["run"] == real_run.id


def test_parquet_of_a_simulation_says_which_ranks_stand_for_others(tmp_path: Path) -> None:
    run = lab.simulate(model="gpt3-175b", dp=16, tp=8, pp=8, microbatches=16)
    again = read_recording(export(run, "parquet", tmp_path / "tables"))
    assert again.stands_for == run.recording.stands_for
    assert len(set(again.stands_for.values())) < len(again.stands_for) == 1024


def test_a_zip_holds_the_folder(tmp_path: Path) -> None:
    run = fake_run(Job.from_options(dp=2))
    folder, archive = export(run, "csv", tmp_path / "tables"), export(run, "csv", tmp_path / "tables.zip")
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        names = {Path(name).name: opened.read(name) for name in opened.namelist()}
        assert {Path(name).parent.name for name in opened.namelist()} == {f"{run.id}-csv"}
    assert names == {path.name: path.read_bytes() for path in folder.iterdir()}
