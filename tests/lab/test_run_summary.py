"""What a finished run says of itself: summary, metrics and parity; its processes pretended."""

from __future__ import annotations

import json
import math

import pytest

import lab
from engine.job.job import Job
from engine.program.compile import compile_job
from lab.facade import Run
from lab.running.execute import run_job
from lab.store.summary import plain
from lab.verdict import judged
from tests.lab.conftest import PretendedLaunch

JOB = Job.from_options(dp=2, tp=2, pp=2, zero=1)
KEYS = {
    "run", "status", "world_size", "backend", "device", "schedule", "mesh", "parity", "steps", "bubble", "overlap",
    "memory", "communication", "time_to_ranks_ready_s", "wall_s",
}  # fmt: skip
MEMORY_KEYS = {
    "rank", "params", "grads", "optimizer", "activations_peak", "gathered_peak", "buffers_peak", "total_peak",
}  # fmt: skip


def newest() -> Run:
    return lab.load("latest")


def test_the_summary_has_the_keys_and_types_of_the_contract(pretended: PretendedLaunch) -> None:
    summary = run_job(JOB).summary
    assert set(summary) == KEYS
    assert summary["mesh"] == {"dp": 2, "tp": 2, "pp": 2} and summary["world_size"] == 8
    assert set(summary["parity"]) >= {
        "passed", "state", "first_step_out", "floor", "loss_max_abs_diff", "grad_norm_max_rel_diff",
        "param_max_abs_diff",
    }  # fmt: skip
    assert set(summary["parity"]["floor"]) == {"loss", "grad_norm", "param"}
    assert [set(step) for step in summary["steps"]] == [
        {"step", "loss", "grad_norm", "seconds", "tokens_per_second"}
    ] * 3
    assert set(summary["bubble"]) == {"measured", "replayed", "formula"}
    for rows in (summary["memory"]["per_rank"], summary["memory"]["predicted_per_rank"]):
        assert [row["rank"] for row in rows] == list(range(8))
        assert all(set(row) == MEMORY_KEYS and all(type(v) is int for v in row.values()) for row in rows)
    for row in summary["communication"]:
        assert set(row) == {"axis", "op", "count", "logical_bytes", "wire_bytes", "predicted_bytes"}
        assert all(type(row[name]) is int for name in ("count", "logical_bytes", "wire_bytes"))
    assert summary["time_to_ranks_ready_s"] < summary["wall_s"]


def test_the_summary_on_disk_is_the_one_in_hand(pretended: PretendedLaunch) -> None:
    run = run_job(JOB)
    assert json.loads((run.folder / "summary.json").read_text()) == run.summary == newest().summary
    assert run.recording.ops.equals(newest().recording.ops)


def test_a_step_lasts_from_the_first_start_to_the_last_end_of_all_ranks(pretended: PretendedLaunch) -> None:
    run = run_job(JOB)
    ops = run.recording.ops.to_pylist()
    for step in run.steps:
        mine = [row for row in ops if row["step"] == step["step"]]
        longest = max(row["end_ns"] for row in mine) - min(row["start_ns"] for row in mine)
        assert step["seconds"] == pytest.approx((longest + 7) / 1e9, rel=1e-12)  # rank r ends r ns later
        assert step["tokens_per_second"] == pytest.approx(16 * 64 / step["seconds"])


def test_the_bubble_of_the_program_at_unit_costs_is_the_formula(pretended: PretendedLaunch) -> None:
    bubble = run_job(Job.from_options(pp=4, microbatches=8, schedule="gpipe")).summary["bubble"]
    assert bubble["replayed"] == pytest.approx(3 / 11) and bubble["formula"] == pytest.approx(3 / 11)


def test_the_folder_of_a_finished_run_holds_what_the_design_lists(pretended: PretendedLaunch) -> None:
    run = run_job(JOB)
    assert {path.name for path in run.folder.iterdir()} == {
        "run.json", "job.toml", "program.txt", "summary.json", "log.txt",
        "ops.parquet", "memory.parquet", "metrics.parquet", "distances.json",
    }  # fmt: skip
    assert newest().job == JOB and newest().program == compile_job(JOB)
    assert newest().info.resident_bytes == (10**8,) * 8


def test_the_metrics_table_holds_the_losses_of_one_process(pretended: PretendedLaunch) -> None:
    assert run_job(JOB).recording.metrics["reference_loss"].to_pylist() == [5.5, 5.25, 5.0]
    alone = run_job(JOB, parity=False).recording.metrics["reference_loss"].to_pylist()
    assert all(map(math.isnan, alone))


def test_without_parity_every_field_of_it_is_null(pretended: PretendedLaunch) -> None:
    assert set(run_job(JOB, parity=False).summary["parity"].values()) == {None}


@pytest.mark.parametrize(
    ("losses", "weights", "passed"), [(0, 0, True), (9e-6, 9e-6, True), (2e-5, 0, False), (0, 2e-5, False)]
)
def test_parity_is_judged_at_1e_5_relative(
    pretended: PretendedLaunch, losses: float, weights: float, passed: bool
) -> None:
    pretended.reference_off_by, pretended.weights_off_by = losses, weights
    found = run_job(JOB).summary["parity"]
    assert found["passed"] is passed
    assert found["loss_max_abs_diff"] == pytest.approx(5.5 * losses)
    assert found["param_max_abs_diff"] == weights


def test_the_record_on_disk_says_the_same_as_the_distances_beside_it(pretended: PretendedLaunch) -> None:
    pretended.reference_off_by = pretended.floor_off_by = 3e-5
    run = run_job(JOB)
    assert newest().distances == run.distances is not None
    assert plain(judged(run.distances)) == run.summary["parity"] == newest().summary["parity"]
    assert newest().badge == run.proof.badge and run.proof.badge.state == "rounding"


def test_a_run_compared_with_nothing_has_no_distances(pretended: PretendedLaunch) -> None:
    run = run_job(JOB, parity=False)
    assert run.distances is None is newest().distances and not (run.folder / "distances.json").exists()
    assert run.proof.badge.state == "none"


@pytest.mark.parametrize("told", [{}, {"param_max_abs_diff": math.nan, "param_max_rel_diff": math.nan}], ids=str)
def test_one_rank_whose_weights_are_unknown_fails_the_whole_run(
    pretended: PretendedLaunch, told: dict[str, float]
) -> None:
    pretended.last_rank_tells = told
    found = run_job(JOB).summary["parity"]
    assert found["passed"] is False and found["param_max_abs_diff"] is None and found["loss_max_abs_diff"] == 0


def test_a_reference_that_nobody_heard_of_is_no_finished_run(pretended: PretendedLaunch) -> None:
    pretended.reference_silent = True
    with pytest.raises(AssertionError, match="a reference that nobody heard of"):
        run_job(JOB)
    assert newest().status == "failed" and newest().summary["parity"]["passed"] is None
