"""Columns may be added: a newcomer goes all the way, old tables are filled, and what nobody knows is told by name."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.job.errors import Unknown
from engine.recording.columns import COLUMNS, FIRST, VERSION, Column, MissingColumn, NewerTables, add_column, schema
from engine.recording.live_files import append_live, append_metric, live_path, read_live, read_live_metrics
from engine.recording.parquet import read_recording
from engine.recording.running_totals import NOTHING, after
from engine.recording.tables import TABLES, MemoryRow, MetricRow, Op, OpCost
from lab.facade import Run, load
from lab.live.files import MetricsFile, newest_lines, step_recording
from lab.store.store import Store
from lab.store.stored_run import RunCorrupt
from lab.views.exports import export
from tests.engine.running import train
from tests.seams.whole_way import pictures, plugged_in, printed, run_and_prove

SMALL: dict[str, Any] = {"layers": 2, "hidden": 32, "heads": 4, "seq": 16, "microbatches": 2, "batch": 8, "steps": 2}
NEW = {"ops": "intensity", "memory": "mebibytes", "metrics": "perplexity"}
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def newcomers() -> Iterator[None]:
    with plugged_in("tests.seams.more_columns", *COLUMNS.values()):
        yield


@pytest.fixture(scope="module")
def run(newcomers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("columns") / "runs"))
        yield run_and_prove(**SMALL, dp=2, pp=2, zero=1)


@pytest.fixture
def copied(run: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run.folder, tmp_path / "runs" / run.id))


def rewrite(folder: Path, name: str, change: Change) -> None:
    path = folder / f"{name}.parquet"
    pq.write_table(change(pq.read_table(path)), path)


def reopened(folder: Path) -> Run:
    return load("latest", Store(folder.parent))


def as_version_1(name: str) -> Change:
    """As the code before columns had versions wrote it: its columns in its order, and no word of a version."""
    return lambda table: table.select(list(FIRST[name])).replace_schema_metadata(None)


# -- a newcomer goes all the way


def test_a_newcomer_is_written_by_real_ranks_and_foretold_alike(run: Run) -> None:
    rows = run.recording.ops.to_pylist()  # `run_and_prove` has compared the column with a rehearsal's, row by row
    assert any(row["intensity"] > 0 for row in rows)
    for row in rows:
        expected = row["flops"] / row["touched_bytes"] if row["touched_bytes"] else 0.0
        assert row["intensity"] == expected


def test_a_newcomer_stands_in_the_files_of_a_run_that_goes_on(newcomers: None) -> None:
    trained = train(parity=False, **SMALL, dp=2)
    assert {"intensity", "flops"} <= set(trained.ops.column_names) and "mebibytes" in trained.memory.column_names
    for row in trained.memory.to_pylist():
        assert row["mebibytes"] == row["bytes"] / 1_048_576


def test_a_newcomer_stands_in_the_stored_tables_and_in_exports(run: Run, tmp_path: Path) -> None:
    folder = export(run, "csv", tmp_path / "tables")
    for name, new in NEW.items():
        stored = pq.read_schema(run.folder / f"{name}.parquet")
        assert stored.names == schema(name).names and stored.names[-1] == new
        assert stored.metadata[b"tables_version"] == str(VERSION).encode()
        with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        expected = getattr(run.recording, name)[new].to_pylist()
        assert [float(row[new]) for row in rows] == expected and len(expected) > 0
    again = read_recording(export(run, "parquet", tmp_path / "again"))
    assert again.ops.equals(run.recording.ops)


def test_a_newcomer_is_in_the_tables_that_learners_get_and_survives_a_replay(run: Run) -> None:
    assert [row["perplexity"] for row in run.recording.metrics.to_pylist()] == [
        math.exp(step["loss"]) for step in run.steps
    ]
    assert "intensity" in run.ops[0]
    there = run.replay("toy-2x4").recording
    assert sorted(there.ops["intensity"].to_pylist()) == sorted(
        row["intensity"] for row in run.recording.ops.to_pylist() if row["step"] == 1
    )
    assert there.metrics["perplexity"].to_pylist() == [math.exp(run.steps[1]["loss"])]


def test_terminal_and_figures_go_on_as_before(run: Run) -> None:
    assert run.id in printed(run)
    assert all(figure.data for figure in pictures(run).values())


# -- old tables and new columns


def test_a_run_stored_before_columns_had_versions_opens_with_the_defaults(run: Run, copied: Path) -> None:
    for name in TABLES:
        rewrite(copied, name, as_version_1(name))
    old = reopened(copied)
    for name, new in NEW.items():
        before, now = getattr(run.recording, name), getattr(old.recording, name)
        assert now.schema.equals(schema(name)) and now[new].to_pylist() == [-1.0] * now.num_rows
        assert now.drop_columns([new]).equals(before.drop_columns([new]))
    assert old.recording.ops_of(1).equals(old.recording.ops.filter(pa.compute.equal(old.recording.ops["step"], 1)))
    assert [set(batch["intensity"].to_pylist()) for batch in old.recording.ops_batches(["intensity"])] == [{-1.0}]
    assert all(figure.data for figure in pictures(old).values()) and old.replay("toy-2x4").recording.ops.num_rows


def test_a_run_that_went_on_before_lines_named_their_columns_is_read_with_the_defaults(
    newcomers: None, tmp_path: Path
) -> None:
    write_live(tmp_path)
    as_live_version_1(tmp_path)
    ops, memory = read_live(tmp_path)
    assert ops.drop_columns(["intensity"]).to_pylist()[0]["flops"] == 12 and ops["intensity"].to_pylist() == [-1.0]
    assert memory["mebibytes"].to_pylist() == [-1.0]
    assert read_live_metrics(tmp_path).to_pylist()[0] | {"loss": 0.5} == {
        **dict(zip(FIRST["metrics"], (0, 0.5, 1.0, 9.0, 9.0, 0.5), strict=True)),
        "perplexity": -1.0,
    }
    followed = step_recording(newest_lines(tmp_path, 1), [])
    assert followed.ops.equals(ops) and followed.memory.equals(memory)


def test_a_later_column_needs_a_default() -> None:
    with pytest.raises(AssertionError, match="needs a default"):
        add_column("ops", Column("bare", int, lambda op: 1))


def write_live(run_dir: Path) -> None:
    """One step of one rank, by the code of today."""
    (run_dir / "live").mkdir()
    op = Op(seq=0, stream="compute", kind="forward", name="f", start_ns=5, end_ns=9, cost=OpCost(flops=12))
    held = MemoryRow(0, 0, 6, "params", 4)
    append_live(live_path(run_dir, 0), [op], [held], after(NOTHING, [op], [held]))
    append_metric(run_dir, MetricRow(0, 0.5, 1.0, 9.0, 9.0, 0.5))


def edit_line(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text())), separators=(",", ":")) + "\n")


def as_live_version_1(run_dir: Path) -> None:
    def values(table: str, names: list[str], row: list[Any]) -> list[Any]:
        return [row[names.index(name)] for name in FIRST[table]]

    def rank(line: dict[str, Any]) -> dict[str, Any]:
        columns = line.pop("columns")
        return line | {t: [values(t, columns[t], row) for row in line[t]] for t in ("ops", "memory")}

    edit_line(live_path(run_dir, 0), rank)
    edit_line(run_dir / "live" / "metrics.jsonl", lambda line: [line["metrics"][name] for name in FIRST["metrics"]])


# -- what nobody knows


@pytest.mark.parametrize("name", TABLES)
def test_a_stored_column_that_nobody_knows_is_told_by_name(copied: Path, name: str) -> None:
    rewrite(copied, name, lambda table: table.append_column("flux", pa.array([1] * table.num_rows)))
    with pytest.raises(Unknown, match="called 'flux'"):
        read_recording(copied)
    with pytest.raises(RunCorrupt, match="called 'flux'"):
        reopened(copied).recording  # noqa: B018


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_a_later_version_says_so_in_words(copied: Path, name: str) -> None:
    rewrite(copied, name, lambda table: table.replace_schema_metadata({"tables_version": "99"}))
    with pytest.raises(NewerTables, match=f"{name}.parquet is of version 99, and this lab reads versions up to"):
        read_recording(copied)
    with pytest.raises(RunCorrupt, match="written by a later one"):
        reopened(copied).recording  # noqa: B018


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("first", ["step", "last"])
def test_a_table_that_lacks_a_column_which_all_have_is_damaged(copied: Path, name: str, first: str) -> None:
    lost = "step" if first == "step" else FIRST[name][-1]
    rewrite(copied, name, lambda table: table.drop_columns([lost]))
    with pytest.raises(MissingColumn, match=f"{name}.parquet has no column {lost}"):
        read_recording(copied)


def unknown(columns: dict[str, Any]) -> None:
    columns["ops"].append("flux")


def later(columns: dict[str, Any]) -> None:
    columns["version"] = 99


def lacking(columns: dict[str, Any]) -> None:
    columns["memory"][columns["memory"].index("bytes")] = "mebibytes"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (unknown, Unknown, "called 'flux'"),
        (later, NewerTables, "is of version 99"),
        (lacking, MissingColumn, "has no column bytes"),
    ],
)
def test_a_line_of_a_run_that_goes_on_tells_the_same(
    newcomers: None, tmp_path: Path, change: Callable[[dict[str, Any]], None], error: type[Exception], words: str
) -> None:
    write_live(tmp_path)

    def damage(line: dict[str, Any]) -> dict[str, Any]:
        change(line["columns"])
        return line

    edit_line(live_path(tmp_path, 0), damage)
    with pytest.raises(error, match=words):
        read_live(tmp_path)
    followed = step_recording(newest_lines(tmp_path, 1), [])
    with pytest.raises(error, match=words):
        followed.ops, followed.memory  # noqa: B018


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"version": 99, "metrics": {}}, NewerTables),
        ({"version": 2, "metrics": {"step": 0}}, MissingColumn),
        ({"version": 2, "metrics": {**dict.fromkeys(FIRST["metrics"], 0), "flux": 1}}, Unknown),
    ],
)
def test_so_do_the_metrics_and_who_follows_them(tmp_path: Path, line: dict[str, Any], error: type[Exception]) -> None:
    path = tmp_path / "live" / "metrics.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(error):
        read_live_metrics(tmp_path)
    with pytest.raises(error):
        MetricsFile(path).read()


def test_without_the_module_that_added_it_a_stored_column_is_unknown(copied: Path) -> None:
    forgotten = COLUMNS["ops"]["intensity"]
    COLUMNS["ops"].remove("intensity")
    try:
        with pytest.raises(Unknown, match="column of operations called 'intensity'"):
            read_recording(copied)
    finally:
        add_column("ops", forgotten)
