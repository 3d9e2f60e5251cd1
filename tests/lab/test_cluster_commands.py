"""The commands about described clusters: `lab simulate`, `lab calibrate`, `lab clusters`, and `--cluster` on runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cluster.cluster import Cluster, load_cluster
from engine.job.job import Hardware, Job
from lab.cli.options import field_docs
from lab.cli.parser import main
from lab.facade import load
from tests.lab.conftest import PretendedLaunch
from tests.lab.test_cli import PLAN, one_object

REFUSALS = [
    ("simulate --cluster here", "run `lab calibrate` once"),
    ("simulate --cluster a100", "did you mean a100-dgx?"),
    ("simulate --cluster none.toml", "the cluster file none.toml cannot be read"),
    ("simulate --model gpt4-175b", "did you mean gpt3-175b?"),
    ("simulate --model gpt3-175b --job job.toml", "leave one of the two out."),
    ("simulate --dp 16 --batch 64 --cluster toy-2x4", "cluster toy-2x4 has 8: use at most 8 ranks"),
    ("simulate --recompute ful", "use none, selective or full."),
    ("simulate --precision fp16", "use fp32, mixed16 or mixed18."),
    ("simulate --program none.txt", "the program file none.txt cannot be read"),
    ("simulate --modle gpt3-175b", "did you mean --model?"),
    ("run --cluster here", "run `lab calibrate` once"),
    ("run --dp 4 --pp 4 --cluster toy-2x4", "use at most 8 ranks"),
    ("run --precision mixed16", "or `lab simulate`."),
    ("clusters a100", "did you mean a100-dgx?"),
]


@pytest.mark.parametrize(("line", "words"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_bad_input_is_refused_in_one_sentence_and_leaves_nothing_behind(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    Path("job.toml").write_text("")
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err
    assert err.startswith("lab: ") and err.count("\n") == 1 and err.rstrip()[-1] in ".?"
    assert pretended.calls == 0 and not Path("runs").exists()


@pytest.mark.parametrize("width", [80, 120])
def test_a_simulation_is_kept_and_shown_within_the_terminal(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["simulate", *PLAN]) == 0
    out = capsys.readouterr().out
    for words in ("≈ simulated on toy-2x4", "✔ fits", "MFU", "Time, simulated", "rank  d t p", "by formula"):
        assert words in out
    assert "measured" not in out and max(map(len, out.splitlines())) <= width
    assert main(["show", "latest"]) == 0
    assert capsys.readouterr().out == out and pretended.calls == 0


def test_json_of_a_simulation_is_its_summary(pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *PLAN, "--json"]) == 0
    found = one_object(capsys.readouterr().out)
    assert found == load().summary
    assert main(["simulate", *PLAN, "--no-keep", "--json"]) == 0
    other = one_object(capsys.readouterr().out)
    assert other["step_seconds"] == found["step_seconds"] and len(list(Path("runs").glob("2*"))) == 1


def test_a_program_file_is_simulated_in_place_of_the_compiled_one(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["program", "--pp", "2", "--schedule", "gpipe"]) == 0
    Path("mine.txt").write_text(capsys.readouterr().out)
    assert main(["simulate", "--pp", "2", "--program", "mine.txt", "--json"]) == 0
    assert one_object(capsys.readouterr().out)["bubble"]["formula"] is None
    assert load().program.text() in Path("mine.txt").read_text()


def test_a_run_that_names_a_cluster_shows_its_replay_there(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lab.facade import Run
    from lab.running import simulation
    from lab.store.simulated_summary import replay_numbers

    twin = simulation.simulate(dp=2, tp=2, pp=2, zero=1)  # the pretended ranks record no costs, so this stands in
    asked: list[Any] = []

    def replayed(run: Run, cluster: str | Cluster | None = None) -> Run:
        asked.append(cluster)
        return twin

    monkeypatch.setattr(simulation, "replayed", replayed)
    monkeypatch.setattr(simulation, "replay_of", lambda *_: replayed(twin, "as it ends"))
    assert main(["run", *PLAN, "--cluster", "toy-2x4", "--json"]) == 0
    found = one_object(capsys.readouterr().out)
    assert found["replay"] == replay_numbers(twin.summary) and found["replay"].keys() == {
        "cluster", "step_seconds", "bubble",
    }  # fmt: skip
    assert load().cluster == load_cluster("toy-2x4") and asked == ["as it ends", None]
    assert main(["show", "latest", "--cluster", "toy-2x4"]) == 0
    out = capsys.readouterr().out
    assert out.index("Time, measured on") < out.index("Time, the same run replayed on cluster toy-2x4")
    assert asked[-1] == "toy-2x4"


def test_calibrate_keeps_what_it_measured_where_simulate_finds_it(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(folder: Path, on_progress: Callable[[str], None]) -> Cluster:
        on_progress("a matrix product")
        cluster = load_cluster("toy-2x4")
        folder.mkdir(parents=True)
        (folder / "here.toml").write_text(cluster.to_toml())
        return cluster

    monkeypatch.setattr("engine.calibration.calibrate.calibrate", measured)
    assert main(["calibrate"]) == 0
    out = capsys.readouterr().out
    assert "600 MFLOP/s" in out and "148 MB/s, 39.7 µs to start and 2.67 µs a hop" in out
    assert main(["simulate", "--dp", "2", "--cluster", "here", "--json"]) == 0
    assert one_object(capsys.readouterr().out)["step_seconds"] > 0
    assert main(["clusters"]) == 0
    assert capsys.readouterr().out.startswith("toy-2x4")


def test_a_machine_that_cannot_be_measured_is_told(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(folder: Path, on_progress: object) -> Cluster:
        raise ValueError("the times make no sense.")

    monkeypatch.setattr("engine.calibration.calibrate.calibrate", fails)
    assert main(["calibrate", "--json"]) == 1
    assert "the times make no sense." in one_object(capsys.readouterr().out)["error"]


def test_clusters_are_listed_with_their_sources_in_json_and_by_name(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clusters", "--json"]) == 0
    found = {c["name"]: c for c in one_object(capsys.readouterr().out)["clusters"]}
    assert found["a100-dgx"]["nodes"][0]["device"]["flops"]["bf16"] == 312e12 and found["toy-2x4"]["devices"] == 8
    assert main(["clusters", "a100-dgx"]) == 0
    assert "NVIDIA A100 80GB datasheet" in " ".join(capsys.readouterr().out.split())


def test_a_broken_cluster_of_the_store_does_not_hide_the_others(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("runs/clusters")
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("[")
    assert main(["clusters"]) == 0
    out, err = capsys.readouterr()
    assert "a100-dgx" in out and "cluster broken is left out" in err


def test_hardware_is_a_section_of_options_and_of_job_files(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--cluster NAME" in shown and " ".join(field_docs(Hardware)["cluster"].split()[:4]) in shown
    for choices in ("none, selective", "naive, gpipe, 1f1b, interleaved", "mixed16 2+2+12"):
        assert choices in shown
    job = Job.from_options(cluster="toy-2x4", recompute="full", precision="mixed18", dropout=0.1)
    Path("job.toml").write_text(job.to_toml())
    assert Job.from_toml(Path("job.toml")) == job
    assert tomllib.loads(job.to_toml())["hardware"] == {"cluster": "toy-2x4"}
    assert json.loads(json.dumps(job.options()))["cluster"] == "toy-2x4"
