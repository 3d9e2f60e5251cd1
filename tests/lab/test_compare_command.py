"""`lab compare`: what it prints, as text and as one object, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import lab
from lab.analysis.comparison import lines
from lab.analysis.comparison.text import explain
from lab.cli.parser import main
from tests.lab.conftest import PretendedLaunch
from tests.lab.test_cli import one_object


@pytest.fixture
def pair(pretended: PretendedLaunch) -> list[str]:
    return [lab.run(dp=2).id, lab.run(dp=2, zero=1).id]


def test_text_shows_settings_signed_differences_with_marks_and_sentences(
    pair: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["compare", *pair]) == 0
    out = capsys.readouterr().out
    assert all(run in out for run in pair)
    words = " ".join(out.split())
    assert "set differently A B zero 0 1" in words
    assert "✔" in out and "−" in out and "✔ better, ✘ worse than A" in words
    assert all(" ".join(sentence.split()) in words for sentence in explain([lab.load(run) for run in pair]))


def test_json_is_one_object_with_the_same_lines(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["compare", *pair, "--json"]) == 0
    found = one_object(capsys.readouterr().out)
    runs = [lab.load(run) for run in pair]
    assert found["runs"] == pair and found["status"] == ["finished"] * 2 and found["cluster"] is None
    assert found["settings"] == {"zero": [0, 1]}
    assert found["lines"] == lines.table(runs) and found["sentences"] == explain(runs)


def test_on_a_cluster_all_runs_are_replayed(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["compare", "-2", "-1", "--cluster", "toy-2x4", "--json"]) == 0
    found = one_object(capsys.readouterr().out)
    expected = [lab.load(run).replay("toy-2x4").summary["step_seconds"] for run in pair]
    assert found["cluster"] == "toy-2x4" and found["runs"] == pair
    (line,) = [line for line in found["lines"] if line["key"] == "step_seconds"]
    assert line["values"] == expected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["latest"], "1 run cannot be compared: name two to 6."),
        (["latest"] * 7, "7 runs cannot be compared: name two to 6."),
        ([], "`lab compare` needs RUN"),
        (["latest", "nobody"], "there is no run 'nobody'"),
        (["latest", "latest", "--cluster", "nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(
    pair: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    capsys.readouterr()
    assert main(["compare", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_corrupt_run_is_told_with_its_reason(pair: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (Path("runs") / pair[0] / "run.json").write_text("{")
    assert main(["compare", *pair]) == 1
    assert f"run {pair[0]} is corrupt: run.json cannot be read" in capsys.readouterr().err


def test_what_is_compared_says_whether_it_equals_one_process_and_which_fault_it_has(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [lab.run(dp=2), lab.run(dp=2, zero=1, bug="same-data")]
    capsys.readouterr()
    assert main(["compare", *(run.id for run in runs)]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert f"came out A B against one process {runs[0].badge.short} {runs[1].badge.short}" in words
    assert main(["compare", "--json", *(run.id for run in runs)]) == 0
    assert one_object(capsys.readouterr().out)["one_process"] == [run.badge.state for run in runs]
    assert lines.names(runs)[1].endswith("with the fault 'same-data'") and "fault" not in lines.names(runs)[0]
