"""A run from end to end, its processes pretended: what is kept, what is judged, what a bad ending leaves."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import lab
from engine.execution.reference import floor_path, other_order, reference_path
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.prediction.peak_memory import predicted_memory, total_bytes
from engine.processes.launch import Failure, RunCancelled, RunFailed
from engine.processes.root_cause import SystemTrouble
from engine.program.checks.check import ProgramError
from engine.program.compile import compile_job
from engine.program.program import Program
from engine.whole_file import write_whole
from lab.facade import Run
from lab.running.execute import PROCESS_BYTES, bytes_needed, run_job
from lab.running.execution import Execution, Progress
from lab.store.stored_run import Store, StoreError
from tests.lab.conftest import PretendedLaunch

JOB = Job.from_options(dp=2, tp=2, pp=2, zero=1)
FAILURE = Failure("rank 3", "forward block1 mb0", "raised ValueError: no", "", ())


def newest() -> Run:
    return lab.load("latest")


def test_progress_tells_of_every_phase_and_step(pretended: PretendedLaunch) -> None:
    heard: list[Progress] = []
    run = run_job(JOB, on_progress=heard.append)
    assert [p.phase for p in heard] == ["starting", "ready", "step", "step", "step", "finishing"]
    assert [(p.step, p.loss) for p in heard if p.phase == "step"] == [(0, 5.5), (1, 5.25), (2, 5.0)]
    assert {(p.run_id, p.world_size, p.steps) for p in heard} == {(run.id, 8, 3)}


def test_a_run_can_be_watched_while_it_goes_on(pretended: PretendedLaunch) -> None:
    seen: list[tuple[str, int, int]] = []

    def look(progress: Progress) -> None:
        if progress.phase == "step":
            run = newest()
            seen.append((run.status, run.recording.metrics.num_rows, len(run.steps)))

    run_job(JOB, on_progress=look)
    assert seen == [("running", 1, 1), ("running", 2, 2), ("running", 3, 3)]


@pytest.mark.parametrize(
    "options",
    [
        {"tp": 3}, {"dp": 3}, {"layers": 0}, {"schedule": "interleaved"}, {"hidden": 2**20, "vocab": 2**20},
        {"dp": 256, "batch": 4096}, {"nosuch": 1}, {"zero": "two"}, {"job": "none.toml"},
    ],
)  # fmt: skip
def test_a_refused_job_leaves_no_trace(pretended: PretendedLaunch, options: dict[str, Any]) -> None:
    with pytest.raises(JobRefused):
        lab.run(**options)
    assert (pretended.calls, pretended.warmed) == (0, 0)
    assert not Path("runs").exists()


def test_a_failed_run_says_why_and_keeps_the_steps_it_did(pretended: PretendedLaunch) -> None:
    pretended.ending, pretended.until = RunFailed(FAILURE), 2
    with pytest.raises(RunFailed):
        run_job(JOB)
    run = newest()
    assert run.status == "failed" and "rank 3" in run.message and "forward block1 mb0" in run.message
    assert [step["step"] for step in run.steps] == [0, 1]
    assert run.summary["parity"]["passed"] is None and run.recording.ops.num_rows > 0


def test_a_run_that_failed_before_its_first_step_can_be_shown(pretended: PretendedLaunch) -> None:
    pretended.ending, pretended.until = RunFailed(FAILURE), 0
    with pytest.raises(RunFailed):
        run_job(JOB)
    assert newest().status == "failed" and newest().steps == []
    assert newest().summary["bubble"]["measured"] is None


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), RunCancelled("cancelled")])
def test_a_stopped_run_is_marked_and_readable(pretended: PretendedLaunch, ending: BaseException) -> None:
    pretended.ending, pretended.until = ending, 1
    with pytest.raises(type(ending)):
        run_job(JOB, cancel=threading.Event())
    assert newest().status == "stopped" and len(newest().steps) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "/full/live/metrics.jsonl")])
def test_a_full_disk_is_one_sentence_with_the_path(pretended: PretendedLaunch, error: OSError) -> None:
    before = run_job(JOB).id
    pretended.ending, pretended.until = error, 1
    with pytest.raises(StoreError) as caught:
        run_job(JOB)
    assert str(caught.value).startswith("/full/live/metrics.jsonl cannot be written: No space left on device;")
    assert newest().status == "failed" and "No space left" in newest().message
    assert lab.load(before).status == "finished"


def test_a_rank_whose_disk_is_full_gets_the_same_sentence(pretended: PretendedLaunch) -> None:
    words = "raised OSError: [Errno 28] No space left on device"
    refused = SystemTrouble(errno.ENOSPC, "")
    pretended.ending, pretended.until = RunFailed(Failure("rank 3", "", words, "", (), refused)), 1
    with pytest.raises(StoreError) as caught:
        run_job(JOB)
    assert str(caught.value).startswith(f"{newest().folder} cannot be written: No space left on device;")


def test_a_folder_that_vanishes_midway_ends_the_run_in_words(pretended: PretendedLaunch) -> None:
    def vanish(folder: Path, step: int) -> None:
        if step == 1:
            for path in sorted(folder.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
            folder.rmdir()

    pretended.before_step = vanish
    with pytest.raises(StoreError, match=r"^the folder .* was removed while its run went on"):
        run_job(JOB)


def test_a_rank_that_misses_its_folder_does_not_get_the_blame(pretended: PretendedLaunch) -> None:
    refused = SystemTrouble(errno.ENOENT, "live/rank000.jsonl")
    pretended.ending, pretended.until = RunFailed(Failure("rank 0", "", "raised", "", (), refused)), 1
    with pytest.raises(RunFailed):
        run_job(JOB)  # the folder is there: it is another file that is missing
    taken = pretended.__call__

    def launch_and_take_away(*given: Any, **named: Any) -> None:
        try:
            taken(*given, **named)
        finally:
            shutil.rmtree(named["log_path"].parent)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.processes.launch.launch", launch_and_take_away)
        with pytest.raises(StoreError, match=r"^the folder .* was removed while its run went on"):
            run_job(JOB)


def test_a_program_written_by_hand_is_what_runs(pretended: PretendedLaunch) -> None:
    job = Job.from_options(pp=2, schedule="gpipe")
    other = compile_job(Job.from_options(pp=2, schedule="1f1b"))
    run = run_job(job, by_hand=Program.parse(other.text()))
    assert newest().program == other and run.program == other


def test_a_program_that_would_not_train_the_job_is_refused_before_anything_starts(
    pretended: PretendedLaunch,
) -> None:
    with pytest.raises(ProgramError, match="missing"):
        run_job(Job(), by_hand=Program((compile_job(Job()).lanes[0][1:],)))
    assert pretended.calls == 0 and not Path("runs").exists()


def test_python_options_job_files_and_jobs_give_the_same_job(pretended: PretendedLaunch, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB.to_toml())
    runs = [
        lab.run(dp=2, tp=2, pp=2, zero=1),
        lab.run(job=JOB),
        lab.run(job=tmp_path / "job.toml"),
        lab.run(job=str(tmp_path / "job.toml"), zero=1),
    ]
    assert {run.job for run in runs} == {JOB}
    assert lab.run(job=JOB, zero=3).job.plan.zero == 3
    assert [run.id for run in lab.runs()][-1] == runs[0].id and len(lab.runs()) == 5


def test_runs_from_threads_do_not_mix(pretended: PretendedLaunch) -> None:
    made: dict[int, Run] = {}
    threads = [threading.Thread(target=lambda z=z: made.update({z: lab.run(dp=2, zero=z)})) for z in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {zero: run.job.plan.zero for zero, run in made.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    assert {run.status for run in lab.runs()} == {"finished"}


def test_figures_come_from_the_run(pretended: PretendedLaunch) -> None:
    run = Run.of(run_job(JOB))
    for figure in (run.timeline(), run.grid(), run.memory(), run.communication()):
        assert type(figure).__name__ == "Figure" and len(figure.data)
    assert len(run.ops) == run.recording.ops.num_rows and run.communication_table == run.summary["communication"]
    assert run.memory_table[0].keys() == {"step", "rank", "time_ns", "category", "bytes"}


def test_of_a_program_written_by_hand_no_formula_is_known_and_its_own_memory_is_predicted(
    pretended: PretendedLaunch,
) -> None:
    job = Job.from_options(pp=2, microbatches=4, schedule="1f1b")
    other = compile_job(Job.from_options(pp=2, microbatches=4, schedule="gpipe"))
    summary = run_job(job, by_hand=other).summary
    assert summary["bubble"]["formula"] is None and summary["bubble"]["replayed"] == pytest.approx(0.2)
    assert summary["memory"]["predicted_per_rank"] == predicted_memory(job, other) != predicted_memory(job)
    assert newest().timeline().layout.title.text.endswith("; no formula is known for this program")


def test_a_schedule_may_be_text_or_a_function(pretended: PretendedLaunch) -> None:
    plan: dict[str, Any] = {"pp": 2, "microbatches": 2}
    text = "F0 F1 B0 B1\nF0 F1 B0 B1"
    as_text, as_function = lab.run(**plan, schedule=text), lab.run(**plan, schedule=lambda p, m, v: text)
    gpipe = compile_job(Job.from_options(**plan, schedule="gpipe"))
    assert as_text.program == as_function.program == gpipe
    with pytest.raises(ProgramError, match="missing"):
        lab.run(**plan, schedule="F0 F1 B0\nF0 F1 B0 B1")
    with pytest.raises(ValueError, match="leave one of the two out"):
        lab.run(**plan, schedule=text, program=gpipe)


def test_a_run_that_ends_early_with_many_rows_leaves_them_and_stays_readable(
    pretended: PretendedLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.running.execution.MOST_LIVE_BYTES", 1000)
    pretended.ending, pretended.until = KeyboardInterrupt(), 2
    with pytest.raises(KeyboardInterrupt):
        run_job(JOB)
    run = newest()
    assert run.status == "stopped" and (run.folder / "live").is_dir() and not list(run.folder.glob("*.parquet"))
    assert [step["step"] for step in run.steps] == [0, 1] and run.summary["bubble"]["measured"] > 0


def test_a_summary_is_read_without_the_tables(pretended: PretendedLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run_job(JOB).summary

    def refuse(folder: Path) -> None:
        raise AssertionError("the tables are not needed")

    monkeypatch.setattr("engine.recording.parquet.read_recording", refuse)
    assert newest().summary == made and len(newest().steps) == 3


def test_a_disk_that_is_full_at_the_end_leaves_the_loss_curve(
    pretended: PretendedLaunch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        if path.name == "summary.json":
            raise OSError(28, "No space left on device", str(path))
        write_whole(path, text)

    monkeypatch.setattr("lab.running.execution.write_whole", full)
    with pytest.raises(StoreError, match="No space left on device"):
        run_job(JOB)
    assert newest().status == "failed" and [step["loss"] for step in newest().steps] == [5.5, 5.25, 5.0]


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), FileNotFoundError(2, "No such file or directory", "/elsewhere")]
)
def test_an_error_that_is_not_of_the_run_folder_keeps_its_own_words(pretended: PretendedLaunch, error: OSError) -> None:
    pretended.ending, pretended.until = error, 1
    with pytest.raises(OSError) as caught:
        run_job(JOB)
    assert caught.value is error and newest().message == str(error)


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_ranks_that_disagree_on_the_step_end_the_run_in_words(
    pretended: PretendedLaunch, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    hear = Execution._on_step

    def one_differs(self: Execution, event: dict[str, Any]) -> None:
        hear(self, event | ({name: 7.0} if (event["rank"], event["step"]) == (3, 1) else {}))

    monkeypatch.setattr(Execution, "_on_step", one_differs)
    with pytest.raises(RunFailed, match=f"rank 3 reports {name} 7.0 of step 1, where rank 0 reports"):
        run_job(JOB)
    assert newest().status == "failed" and len(newest().steps) == 1


def test_what_ranks_reported_of_a_step_is_not_kept(pretended: PretendedLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    tell = Execution._notify
    monkeypatch.setattr(Execution, "_notify", lambda self, *a: (seen.append(len(self.reports)), tell(self, *a))[1])
    run_job(JOB)
    assert seen == [0] * 6


def test_the_memory_check_counts_processes_and_the_reference_and_floor_that_have_to_be_made(tmp_path: Path) -> None:
    store = Store(tmp_path)
    alone = total_bytes(JOB) + 8 * PROCESS_BYTES
    assert bytes_needed(JOB, parity=False, store=store) == alone
    floor = total_bytes(other_order(JOB)) + PROCESS_BYTES
    reference = total_bytes(JOB.one_process()) + PROCESS_BYTES
    assert bytes_needed(JOB, parity=True, store=store) == alone + reference + floor
    kept = reference_path(JOB, tmp_path / "references")
    kept.parent.mkdir()
    kept.touch()
    assert bytes_needed(JOB, parity=True, store=store) == alone + floor
    floor_path(kept).touch()
    assert bytes_needed(JOB, parity=True, store=store) == alone
