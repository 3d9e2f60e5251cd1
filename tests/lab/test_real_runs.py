"""The whole way with real processes: proof, predictions, interruption, sudden death, full disk, demo."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import lab
from lab.cli.parser import main
from lab.store.stored_run import StoreError

LAB = [sys.executable, "-m", "lab.cli"]
GONE_WITHIN = 3.0  # seconds, from the issue


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def test_a_run_in_three_dimensions_proves_itself_and_meets_its_predictions() -> None:
    run = lab.run(dp=2, tp=2, pp=2, zero=1)
    summary = run.summary
    assert run.status == "finished" and summary["parity"]["passed"] is True
    assert len({step["loss"] for step in summary["steps"]}) == 3
    assert summary["memory"]["per_rank"] == summary["memory"]["predicted_per_rank"]
    assert summary["communication"]
    assert all(row["logical_bytes"] == row["predicted_bytes"] for row in summary["communication"])
    assert 0 < summary["bubble"]["measured"] < 1
    assert summary["bubble"]["replayed"] == pytest.approx(summary["bubble"]["formula"]) == pytest.approx(0.2)
    assert len(run.info.resident_bytes) == 8 and min(run.info.resident_bytes) > 10**7
    assert not list(run.folder.glob("reference*")), "the reference's weights are as large as the model"


@pytest.mark.parametrize("zero", [0, 1, 2])
def test_replicas_end_with_the_same_weights_to_the_last_bit(zero: int) -> None:
    fingerprints = lab.run(dp=3, batch=12, microbatches=2, zero=zero, steps=2).info.fingerprints
    assert len(fingerprints) == 3 and len(set(fingerprints)) == 1


def test_ranks_with_other_slices_of_the_model_or_other_seeds_have_other_fingerprints() -> None:
    sharded = lab.run(dp=2, zero=3, steps=1).info.fingerprints
    split = lab.run(dp=2, tp=2, steps=1).info.fingerprints
    assert len(set(sharded)) == 2
    assert split[0] == split[2] != split[1] == split[3]  # tensor ranks are neighbours
    seeds = {lab.run(dp=1, steps=1, seed=seed).info.fingerprints for seed in (0, 0, 1)}
    assert len(seeds) == 2


def test_from_the_shell_json_is_one_object_and_progress_is_elsewhere() -> None:
    done = subprocess.run([*LAB, "run", "--dp", "2", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["parity"]["passed"] is True
    assert "step 3/3" in done.stderr


@contextlib.contextmanager
def long_run() -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """A run from the shell that would take for ever, past its first step; and all its processes."""
    command = [*LAB, "run", "--dp", "2", "--pp", "2", "--steps", "1000000", "--no-parity"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            rows = Path("runs")
            while not list(rows.glob("*/live/metrics.jsonl")):
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            yield process, psutil.Process(process.pid).children(recursive=True)
        finally:
            process.kill()


def all_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=GONE_WITHIN)
    return not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.timed
def test_ctrl_c_stops_a_run_that_stays_readable() -> None:
    with long_run() as (process, children):
        assert len(children) >= 6  # four ranks, their supervisor, the fork server
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=10)
        assert process.returncode == 130 and "was stopped; what it did so far is kept." in err
        assert all_gone(children)
    run = lab.load()
    assert run.status == "stopped" and len(run.steps) >= 1 and run.recording.ops.num_rows > 0
    assert main(["show", "latest"]) == 0


@pytest.mark.timed
def test_a_killed_run_reads_as_killed_and_leaves_nobody() -> None:
    with long_run() as (process, children):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert all_gone(children)
    run = lab.load()
    assert run.status == "killed" and len(run.steps) >= 1
    assert main(["show", "latest"]) == 0


def test_a_full_disk_is_one_sentence_and_earlier_runs_are_intact(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(small_disk / "runs"))
    before = lab.run(dp=2)
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 300_000))
    with pytest.raises(StoreError) as caught:
        lab.run(dp=2, steps=100_000, parity=False)
    words = "cannot be written: No space left on device; free some space or set SHARDLAB_RUNS to another folder."
    assert str(caught.value).startswith(str(small_disk)) and str(caught.value).endswith(words)
    failed, intact = lab.runs()
    assert failed.status == "failed" and "No space left on device" in failed.message
    assert len(failed.steps) > 3, "what it did before stays readable"
    assert intact.id == before.id and intact.recording.ops.equals(before.recording.ops)


def test_a_rank_that_may_not_write_more_ends_the_run_in_words() -> None:
    """The shell's limit on the size of a file, which a rank's rows soon reach."""
    command = f"ulimit -f 200; exec {' '.join(LAB)} run --dp 2 --steps 100000 --no-parity"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1 and "cannot be written: File too large" in done.stderr
    assert lab.load().status == "failed"


def test_the_demo_writes_a_report_and_says_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert str(Path("demo-report.html").absolute()) in out.replace("\n", "") and "✔ equal to one process" in out
    assert "<html" in Path("demo-report.html").read_text()[:500].lower()


def test_the_doctor_finds_this_machine_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and {"python", "processes", "run folder"} <= {check["name"] for check in found["checks"]}


def test_the_doctor_says_what_to_do_about_a_folder_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").write_text("in the way")
    monkeypatch.setenv("SHARDLAB_RUNS", str(Path("file").absolute() / "runs"))
    assert main(["doctor"]) == 1
    assert "→ set SHARDLAB_RUNS to a folder you can write to" in capsys.readouterr().out
