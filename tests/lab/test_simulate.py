"""Simulations from the lab: the same kind of run as of processes, checked by hand and against the formulas."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lab
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.prediction import formulas
from lab.analysis import memory_over_time
from lab.cli.parser import main
from lab.running.simulation import job_to_simulate
from lab.views import figures
from tests.lab.conftest import PretendedLaunch

FEW = {"dp": 2, "tp": 2, "pp": 2, "zero": 1}
GPT3 = {"model": "gpt3-175b", "tp": 8, "pp": 8, "dp": 16, "microbatches": 8, "batch": 128}


@pytest.fixture(autouse=True)
def in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def gpt3() -> lab.Run:
    return lab.simulate(**GPT3)


def test_a_simulation_has_the_keys_of_a_run_and_its_own(pretended: PretendedLaunch) -> None:
    ran, found = lab.run(**FEW).summary, lab.simulate(**FEW).summary
    own = {"cluster", "step_seconds", "mfu", "hfu", "tflops_per_gpu", "fits"}
    assert found.keys() - ran.keys() == own and ran.keys() <= found.keys()
    assert set(found["parity"].values()) == {None} and found["bubble"]["measured"] is None
    same = ("world_size", "schedule", "mesh")
    assert {key: ran[key] for key in same} == {key: found[key] for key in same}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_simulation_in_memory_leaves_nothing_behind() -> None:
    lab.simulate(**FEW)
    assert list(Path.cwd().iterdir()) == []


def test_every_rank_of_a_small_job_is_recorded_with_the_bytes_that_are_predicted() -> None:
    run = lab.simulate(**FEW)
    assert not run.recording.stands_for and len(run.summary["memory"]["per_rank"]) == 8
    state = formulas.state_bytes(run.job, 0)
    assert {name: run.summary["memory"]["per_rank"][0][name] for name in state} == state
    assert all(row["predicted_bytes"] == row["logical_bytes"] for row in run.summary["communication"])


def test_mfu_and_hfu_follow_their_definitions(gpt3: lab.Run) -> None:
    found, job = gpt3.summary, gpt3.job
    peak = 1024 * 312e12  # A100 in bf16
    assert found["mfu"] == pytest.approx(formulas.model_flops(job) / (found["step_seconds"] * peak))
    # selective recomputation repeats the attention's two products, 4·s·h per token and block, of the model's
    # 3·(L·(24·h² + 4·s·h) + 2·h·V)
    layers, h, s, v = 96, 12288, 2048, 51200
    again = 1 + layers * 4 * s * h / (3 * (layers * (24 * h * h + 4 * s * h) + 2 * h * v))
    assert found["hfu"] / found["mfu"] == pytest.approx(again, rel=1e-6)
    assert found["tflops_per_gpu"] == pytest.approx(found["hfu"] * 312)


def test_ranks_of_a_large_job_are_told_by_those_that_stand_for_them(gpt3: lab.Run) -> None:
    rows = gpt3.summary["memory"]["per_rank"]
    assert sum(row["stands_for"] for row in rows) == 1024 and len(rows) < 64
    assert len(figures.grid_values(gpt3, "memory")) == len(figures.grid_values(gpt3, "idle")) == 1024
    # 18 bytes a parameter on the first rank: 12 of 96 blocks, an eighth of each, and its part of the embedding
    first = next(row for row in rows if row["rank"] == 0)
    state = first["params"] + first["grads"] + first["optimizer"]
    assert state == sum(formulas.state_bytes(gpt3.job, 0).values())


def test_every_figure_of_a_large_job_is_small_and_names_its_ranks(gpt3: lab.Run) -> None:
    for draw in (gpt3.timeline, gpt3.grid, gpt3.memory, gpt3.communication):
        assert len(draw().to_json()) < 3_000_000
    assert "0 ×128" in str(gpt3.memory().layout.xaxis.ticktext)
    named = figures.timeline(gpt3).to_json() + figures.bubble(gpt3).to_json()
    assert named.count("rank 0 (and 127 like it)") >= 1
    matrix = figures.communication_matrix(gpt3)
    assert matrix.data[0].z.shape[0] == len(gpt3.summary["memory"]["per_rank"])
    assert figures.memory_over_time(gpt3, rank=5).data  # a rank that another one stands for
    assert len(gpt3.report("big.html").read_text()) < 12_000_000


def test_memory_changes_with_the_operations_and_not_at_the_end() -> None:
    run = lab.simulate(pp=2, dp=2)
    rows = [row for row in run.ops if row["rank"] == 0 and row["name"].startswith("forward block0 mb0")]
    times, held = memory_over_time(run.recording, 0)
    kept = formulas.kept_bytes(run.job, "block0") + formulas.kept_bytes(run.job, "embedding")
    at = int(np.searchsorted(times, rows[0]["end_ns"] + 10, side="right")) - 1
    assert held[3][at] == kept  # activations, the fourth category


def test_what_does_not_fit_is_an_answer_and_says_which_category_is_too_much() -> None:
    found = lab.simulate(model="gpt3-175b", tp=8, dp=2, microbatches=4, batch=8).summary
    # 175e9 / 8 parameters of 2 bytes fill 44 of 80 GB; their 4-byte gradients do not fit beside them
    assert found["fits"] is False and found["memory"]["worst"]["breaks"] == "grads"
    assert lab.simulate(**FEW).summary["memory"]["worst"]["breaks"] is None


def test_the_documented_call_works_as_it_is_with_one_sequence_a_micro_batch() -> None:
    job = job_to_simulate("gpt3-175b", None, {"tp": 8, "pp": 8, "dp": 16, "cluster": "a100-dgx"})
    assert (job.plan.microbatches, job.microbatch_size, job.training.precision) == (96, 1, "mixed18")
    turns = job_to_simulate("gpt3-175b", None, {"tp": 8, "pp": 8, "dp": 16, "schedule": "interleaved", "chunks": 3})
    assert turns.plan.microbatches % 8 == 0


def test_small_jobs_go_to_the_toy_cluster_and_published_or_large_ones_to_a100s() -> None:
    assert job_to_simulate(None, None, {"dp": 8}).hardware.cluster == "toy-2x4"
    assert job_to_simulate(None, None, {"dp": 16}).hardware.cluster == "a100-dgx"
    assert job_to_simulate("gpt3-175b", None, {}).hardware.cluster == "a100-dgx"


def test_a_kept_simulation_is_a_run_of_the_store_and_reads_back_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    kept = lab.simulate(keep=True, **GPT3)
    found = lab.load("latest")
    assert (found.id, found.status) == (kept.id, "simulated") and found.summary == kept.summary
    assert found.recording.stands_for == kept.recording.stands_for
    assert found.recording.ops.equals(kept.recording.ops) and found.program == kept.program
    assert found.cluster == kept.cluster and found.cluster is not None
    assert "simulated on a100-dgx" in repr(found) and "MFU" in found._repr_html_()
    for line in ("runs", "show latest", "report latest"):
        assert main(line.split()) == 0
    assert "simulated" in capsys.readouterr().out
    (found.folder / "ops.parquet").unlink()
    assert lab.load("latest").status == "corrupt"


def test_a_damaged_cluster_file_of_a_run_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    kept = lab.simulate(keep=True, **FEW)
    (kept.folder / "cluster.toml").write_text("[")
    assert main(["show", "latest"]) == 1
    assert "cluster.toml is not TOML" in capsys.readouterr().err


def test_a_run_replays_on_its_own_cluster_and_on_any_other(pretended: PretendedLaunch) -> None:
    simulated = lab.simulate(**FEW)
    other = simulated.replay("a100-dgx")
    assert (other.status, other.summary["cluster"]) == ("simulated", "a100-dgx")
    assert simulated.replay().summary["step_seconds"] == simulated.summary["step_seconds"]
    with pytest.raises(JobRefused, match="names no cluster"):
        lab.run(**FEW).replay()


def test_an_unknown_preset_and_two_sources_of_a_job_are_refused() -> None:
    with pytest.raises(JobRefused, match="did you mean gpt3-175b"):
        lab.simulate(model="gpt3")
    with pytest.raises(JobRefused, match="leave one of the two out"):
        lab.simulate(model="gpt3-175b", job=Job())


TOO_MUCH: list[dict[str, Any]] = [
    {"tp": 10**9}, {"pp": 10**9}, {"dp": 10**9, "batch": 4 * 10**9}, {"batch": 10**12}, {"layers": 10**6},
    {"layers": 25_000}, {"hidden": 10**12}, {"vocab": 10**12}, {"seq": 10**9}, {"batch": 2**63, "microbatches": 1},
    {"model": "gpt3-175b", "tp": 8, "cluster": "a100-dgx", "dp": 10**6, "batch": 10**9},
    {"model": "gpt3-175b", "tp": 8, "cluster": "toy-2x4"}, {"dp": 16, "batch": 64, "cluster": "toy-2x4"},
]  # fmt: skip


@pytest.mark.parametrize("options", TOO_MUCH, ids=str)
def test_absurd_numbers_are_refused_in_one_sentence_before_any_work(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.prediction.simulate.simulate", lambda *_, **__: pytest.fail("it was simulated"))
    with pytest.raises(JobRefused) as refused:
        lab.simulate(**options)
    assert str(refused.value).count("\n") == 0 and str(refused.value).endswith(".")


def test_a_second_simulation_of_the_same_shapes_needs_no_torch() -> None:
    line = [sys.executable, "-c", _WITHOUT_TORCH]
    first, second = (subprocess.run(line, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert (first.splitlines()[-1], second.splitlines()[-1]) == ("True", "False")
    seconds = [json.loads(text.splitlines()[0])["step_seconds"] for text in (first, second)]
    assert seconds[0] == seconds[1]


_WITHOUT_TORCH = """import sys
from lab.cli.parser import main
main(['simulate', '--pp', '2', '--json'])
print('torch' in sys.modules)
"""


def test_damaged_templates_are_made_again() -> None:
    Path("runs").mkdir()
    from engine.prediction.op_templates.template_cache import _alone_templates, _unit_templates

    def fresh() -> float:
        _unit_templates.cache_clear()
        _alone_templates.cache_clear()
        return float(lab.simulate(pp=2).summary["step_seconds"])

    first = fresh()
    files = sorted(Path("runs/templates").glob("*.json"))
    whole = files[0].read_text()
    for path, text in zip(files, ("[", '[["forward", "block", [{"no": 1}]]]'), strict=False):
        path.write_text(text)
    assert fresh() == first
    for text in ("[" * 5000, whole.replace('"flops": ', '"flops": 1'), whole.partition("\n")[0] + "\n[]"):
        files[0].write_text(text)
        assert fresh() == first
    assert files and fresh() == first
    assert all(json.loads(path.read_text().partition("\n")[2]) for path in files)


def test_an_order_written_by_hand_is_simulated_like_any_other() -> None:
    gpipe = lab.simulate(pp=2, layers=4, schedule="F0 F1 F2 F3 B0 B1 B2 B3\nF0 F1 F2 F3 B0 B1 B2 B3")
    named = lab.simulate(pp=2, layers=4, schedule="gpipe")
    assert gpipe.summary["step_seconds"] == named.summary["step_seconds"]
    with pytest.raises(ValueError, match="it needs forward"):
        lab.simulate(pp=2, layers=4, schedule="F0 F1 F2 F3 B0 B1 B2 B3\nF0 F1 B2 F2 F3 B0 B1 B3")


def test_a_replay_counts_the_wire_bytes_of_the_clusters_backend() -> None:
    found = lab.simulate(dp=4, zero=2)  # on toy-2x4, which speaks nccl: gloo would send twice as many
    rows = [row for row in found.summary["communication"] if row["op"] == "reduce_scatter"]
    assert rows and all(row["wire_bytes"] == row["logical_bytes"] for row in rows)
