"""`lab export`, `Run.export` and downloads: where things go, and what is said when they cannot."""

from __future__ import annotations

import errno
import io
import json
import os
import zipfile
from pathlib import Path
from typing import IO

import pytest

from engine.job.errors import UserError
from engine.job.job import Job
from engine.processes.launch import Failure, RunFailed
from lab.cli.parser import main
from lab.facade import load
from lab.store.stored_run import RunCorrupt, StoreError
from lab.views.exports import FORMATS, default_name, export, export_bytes
from lab.views.exports.parts import write_file
from tests.lab.conftest import PretendedLaunch
from tests.lab.fake_run import fake_run
from tests.lab.test_cli import one_object
from tests.lab.trace_checker import problems

FAILURE = Failure("rank 1", "forward block1 mb0", "raised ValueError: no", "", ())
REFUSALS = [
    ("--format perfeto", "there is no export format 'perfeto': did you mean perfetto?"),
    ("--format CSVs", "did you mean csv?"),
    ("--format xlsx", "use perfetto, hta, csv, parquet."),
    ("--step 7", "step=7 was not recorded: use one of 0 to 2."),
    ("--step one", "step='one' is not valid: use a whole number."),
    ("--format csv --step 1", "step=1 is of perfetto and hta: csv holds every step, leave it out."),
    ("--format hta -o full", "the folder full holds of-mine.txt, which is not of this export: name another folder."),
    ("--frmat csv", "did you mean --format?"),
]


@pytest.fixture
def a_run(pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["run", "--dp", "2"]) == 0
    capsys.readouterr()
    return load().id


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_written_where_one_says_and_again_over_itself(
    a_run: str, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    for _ in range(2):
        assert main(["export", "latest", "--format", format, "-o", "deep/out", "--json"]) == 0
        assert one_object(capsys.readouterr().out) == {"run": a_run, "format": format, "export": "deep/out"}
    made = Path("deep/out")
    assert made.is_file() if format == "perfetto" else len(list(made.iterdir())) == (2 if format == "hta" else 4)
    assert [path.name for path in Path("deep").iterdir()] == ["out"], "no draft is left"


@pytest.mark.parametrize("format", FORMATS)
def test_what_nobody_named_is_called_after_the_run(a_run: str, capsys: pytest.CaptureFixture[str], format: str) -> None:
    assert main(["export", "-1", "--format", format]) == 0
    name = capsys.readouterr().out.strip()
    assert name.startswith(a_run) and Path(name).exists() and name == default_name(load(), format)


def test_a_trace_goes_into_a_folder_that_exists_or_a_zip(a_run: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("traces").mkdir()
    assert main(["export", "latest", "-o", "traces"]) == 0
    inside = Path(capsys.readouterr().out.strip())
    assert inside == Path("traces") / f"{a_run}.perfetto.json" and problems(json.loads(inside.read_text())) == []
    path = load().export("perfetto", "trace.zip")
    with zipfile.ZipFile(path) as archive:
        assert archive.read(archive.namelist()[0]) == inside.read_bytes()


@pytest.mark.parametrize(("options", "words"), REFUSALS, ids=[options for options, _ in REFUSALS])
def test_what_cannot_be_exported_is_refused_in_one_sentence_and_leaves_nothing_behind(
    a_run: str, capsys: pytest.CaptureFixture[str], options: str, words: str
) -> None:
    Path("full").mkdir()
    Path("full/of-mine.txt").write_text("mine")
    assert main(["export", "latest", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err and err.startswith("lab: ") and err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == ["full", "runs"] and len(list(Path("full").iterdir())) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_a_place_that_cannot_be_written_is_told(a_run: str, capsys: pytest.CaptureFixture[str], format: str) -> None:
    Path("file").write_text("in the way")
    assert main(["export", "latest", "--format", format, "-o", "file/x", "--json"]) == 1
    out, err = capsys.readouterr()
    assert err == "lab: the export file/x cannot be written: part of its path is a file, not a folder.\n"
    assert one_object(out)["status"] == "failed"


def fills_up(file: IO[bytes]) -> None:
    file.write(b"half of it")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_up_leaves_no_half_file(a_run: str) -> None:
    Path("old.json").write_text("old")
    with pytest.raises(OSError, match="No space left"):
        write_file(Path("old.json"), fills_up)
    assert Path("old.json").read_text() == "old" and {p.name for p in Path().iterdir()} == {"old.json", "runs"}


def test_a_run_that_completed_no_step_has_nothing_to_export(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended.ending, pretended.until = RunFailed(FAILURE), 0
    assert main(["run", "--dp", "2"]) == 1
    run = load()
    capsys.readouterr()
    assert main(["export", "latest"]) == 2
    words = f"run {run.id} completed no step (failed), so there is nothing to export."
    assert words in capsys.readouterr().err
    for format in FORMATS:
        with pytest.raises(UserError, match="completed no step"):
            export_bytes(run, format)


def test_a_run_that_ended_early_is_exported_as_far_as_it_went(pretended: PretendedLaunch) -> None:
    pretended.ending, pretended.until = RunFailed(FAILURE), 2
    assert main(["run", "--dp", "2"]) == 1
    trace = json.loads(load().export("perfetto", "trace.json").read_text())
    marks = {e["name"] for e in trace["traceEvents"] if e.get("cat") == "mark" and e["name"] != "sent"}
    assert problems(trace) == [] and marks == {"step 0", "step 1"} and trace["otherData"]["status"] == "failed"


@pytest.mark.parametrize("format", FORMATS)
def test_a_corrupt_run_is_told(a_run: str, capsys: pytest.CaptureFixture[str], format: str) -> None:
    table = load().folder / "ops.parquet"
    whole = table.read_bytes()
    table.write_bytes(whole[:-100])
    assert main(["export", "latest", "--format", format, "-o", "out", "--json"]) == 1
    found = one_object(capsys.readouterr().out)
    assert found["status"] == "corrupt" and "ops.parquet is cut short" in found["error"]
    with pytest.raises(RunCorrupt, match=r"ops\.parquet is cut short"):
        load().export(format, "out")
    table.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])  # its frame is whole
    with pytest.raises(RunCorrupt, match=f"the tables of run {a_run} cannot be read"):
        load().export(format, "out")
    assert not Path("out").is_file()


@pytest.mark.parametrize("format", FORMATS)
def test_a_download_has_a_name_a_type_and_the_content_of_the_export(format: str, tmp_path: Path) -> None:
    run = fake_run(Job.from_options(dp=2, pp=2))
    name, content, mime = export_bytes(run, format)
    made = export(run, format, tmp_path / "out")
    if format == "perfetto":
        assert (name, mime) == (f"{run.id}.perfetto.json", "application/json") and content == made.read_bytes()
        return
    assert (name, mime) == (f"{run.id}-{format}.zip", "application/zip")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        inside = {Path(n).name: archive.read(n) for n in archive.namelist()}
    assert inside == {path.name: path.read_bytes() for path in made.iterdir()}


def test_an_export_into_a_file_that_is_in_the_way_is_told_to_learners(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"the export .*/file cannot be written: part of its path is a file"):
        export(fake_run(Job()), "csv", tmp_path / "file")
