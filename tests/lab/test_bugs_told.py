"""A run with a fault says so wherever it is shown, and a fault that cannot show is refused in a sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest

import lab
from engine.job.bugs import BUGS
from engine.job.errors import JobRefused
from engine.job.job import Job
from lab.cli.parser import main
from lab.running.execute import checked, run_job
from tests.lab.conftest import PretendedLaunch

FAULTY = Job.from_options(dp=2, bug="no-data-reduction")


@pytest.mark.parametrize(
    ("bug", "options", "sentence"),
    [
        ("tied-copies-not-summed", {}, "bug=tied-copies-not-summed shows nothing with pp=1: use pp=2."),
        ("tied-copies-not-summed", {"pp": 2},
         "bug=tied-copies-not-summed shows nothing with tied=false: use tied=true."),
        ("no-data-reduction", {}, "bug=no-data-reduction shows nothing with dp=1: use dp=2."),
        ("no-data-reduction", {"dp": 2, "zero": 3}, "bug=no-data-reduction shows nothing with zero=3: use zero=1."),
        ("stale-gather", {"dp": 2, "zero": 1}, "bug=stale-gather shows nothing with zero=1: use zero=3."),
        ("clip-by-own-norm", {"dp": 2}, "bug=clip-by-own-norm shows nothing with tp=1: use tp=2."),
        ("wrong-tag", {"pp": 2, "schedule": "naive"},
         "bug=wrong-tag shows nothing with schedule=naive: use schedule=1f1b."),
        ("row-bias-t-times", {"tp": 2, "steps": 1}, "bug=row-bias-t-times shows nothing with steps=1: use steps=3."),
        ("no-reduction", {"dp": 2}, "there is no bug called 'no-reduction': did you mean no-data-reduction?"),
    ],
)  # fmt: skip
def test_a_fault_that_cannot_show_is_refused_with_what_it_needs(
    bug: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(JobRefused) as refused:
        checked(Job.from_options(bug=bug, **options))
    assert str(refused.value) == sentence


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_job_that_shows_a_fault_may_be_run_and_the_plain_one_lacks_something(bug: Any) -> None:
    checked(Job.from_options(bug=bug.name, **bug.options))
    with pytest.raises(JobRefused, match=f"^bug={bug.name} shows nothing with "):
        checked(Job.from_options(bug=bug.name, microbatches=1, steps=1))


def test_nothing_is_predicted_with_a_fault() -> None:
    sentence = "^bug=no-data-reduction is a fault of real runs: use `lab run`, or leave bug out.$"
    with pytest.raises(JobRefused, match=sentence):
        lab.simulate(job=FAULTY)
    with pytest.raises(JobRefused, match=sentence):
        lab.plan(model=FAULTY, gpus=4)
    with pytest.raises(JobRefused, match=sentence):
        lab.explore(job=FAULTY)


def test_a_fault_and_an_order_of_ones_own_are_too_much_at_once() -> None:
    with pytest.raises(JobRefused, match="leave the bug or your own order out"):
        checked(FAULTY, by_hand="F0 F1 F2 F3 B0 B1 B2 B3")


def test_a_run_with_a_fault_says_so_wherever_it_is_shown(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = lab.Run.of(run_job(FAULTY))
    mark = "with the fault 'no-data-reduction'"
    assert json.loads((run.folder / "run.json").read_text())["job"]["bug"] == "no-data-reduction"
    assert run.summary["bug"] == "no-data-reduction" and mark in repr(run) and not run.by_hand
    assert mark in run.report(run.folder / "report.html").read_text().replace("&#x27;", "'")
    assert main(["show", run.id]) == 0
    assert "no-data-reduction, put in on purpose" in capsys.readouterr().out
    main(["runs"])
    assert "no-data-reduction" in capsys.readouterr().out
    main(["runs", "--json"])
    assert [one["bug"] for one in json.loads(capsys.readouterr().out)["runs"]] == ["no-data-reduction"]


def test_a_run_without_a_fault_says_nothing_of_faults(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = lab.Run.of(run_job(Job.from_options(dp=2)))
    main(["show", run.id])
    main(["runs"])
    shown = capsys.readouterr().out + repr(run) + run.report(run.folder / "report.html").read_text()
    assert "with the fault" not in shown and "put in on purpose" not in shown
    assert "bug" not in run.summary


def test_the_zoo_is_listed_for_people_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bugs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["bugs"]
    assert [one["name"] for one in listed] == [bug.name for bug in lab.bugs()] == list(BUGS.names)
    assert {one["name"]: one["seen_in"] for one in listed if one["seen_in"]} == {"reduced-every-microbatch": "bytes"}
    assert all(Job.from_options(bug=one["name"], **one["options"]) for one in listed)
    assert main(["bugs"]) == 0
    assert "lab run --dp 2 --zero 3 --bug stale-gather" in " ".join(capsys.readouterr().out.split())


def test_a_job_file_may_name_a_fault(tmp_path: Any) -> None:
    (tmp_path / "job.toml").write_text(FAULTY.to_toml())
    assert Job.from_toml(tmp_path / "job.toml") == FAULTY


def test_the_program_of_a_fault_is_shown_beside_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    main(["program", "--dp", "2", "--bug", "no-data-reduction", "--against", "--bug ''", "--json"])
    changed = [line for line in json.loads(capsys.readouterr().out)["diff"] if line[0] in "+-"]
    assert changed and all(line.startswith("- ") and "reduce" in line for line in changed)
