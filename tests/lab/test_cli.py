"""The `lab` command: what it prints where, with which exit status, in which words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.job.job import Job, Model, Plan, Training
from engine.processes.launch import Failure, RunFailed
from engine.program.compile import compile_job
from engine.program.program import Program
from lab.cli.options import field_docs
from lab.cli.parser import main
from tests.lab.conftest import PretendedLaunch

PLAN = ["--dp", "2", "--tp", "2", "--pp", "2", "--zero", "1"]


def one_object(text: str) -> dict[str, Any]:
    """What `--json` promises: the whole of stdout is one JSON object, with no NaN in it."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


REFUSALS = [
    ("run --tp 3", "tp=3 does not divide heads=4: use 1, 2 or 4."),
    ("run --dp 3", "dp=3 × microbatches=4 = 12 does not divide batch=16: use batch=12 or 24."),
    ("run --pp 8", "use layers=8 or more, or pp × chunks of at most 4."),
    ("run --zero 4", "zero=4 is not a ZeRO stage: use 0, 1, 2 or 3."),
    ("run --dp two", "dp='two'"),
    ("run --lr nan", "lr=nan is not a positive number"),
    ("run --schedule 1f1", "naive, gpipe, 1f1b, interleaved, zb-h1, zb-h2 or zb-v."),
    ("run --dpp 2", "has no option --dpp: did you mean --dp?"),
    ("run --sequence_parallel", "did you mean --sequence-parallel?"),
    ("run --xyzzy", "see `lab run --help`."),
    ("run --dp", "--dp needs a value"),
    ("run --tied=yes", "--tied takes no value"),
    ("run 8", "does not know what to do with '8'"),
    ("run --partition 1,x --pp 2", "partition='1,x' is not a list of whole numbers"),
    ("run --partition 1,1 --pp 2", "partition=1,1 must share out layers=4"),
    ("run --job none.toml", "the job file none.toml cannot be read: No such file or directory."),
    ("run --job broken.toml", "the job file broken.toml is not TOML"),
    ("run --text none.txt", "text='none.txt' is not a file that exists"),
    ("run --hidden 1048576 --vocab 1048576", "this job needs about"),
    ("run --dp 128 --tp 4 --batch 512", "512 processes are too many for one machine"),
    ("run --program none.txt", "the program file none.txt cannot be read: No such file or directory."),
    ("run --schedule-file none.txt", "the schedule file none.txt cannot be read: No such file or directory."),
    ("run --program a --schedule-file b", "both say what to run: leave one of the two out."),
    ("program --rank 1", "rank=1 is not in this job: use 0 to 0."),
    ("program --rank x", "rank=x is not in this job"),
    ("program --rank 0 --grid", "--rank shows one rank and --grid all of them: leave one of the two out."),
    ("program --rank 0 --against --zero=1", "--rank shows one rank and --against all of them"),
    ("program --against --zero=9", "zero=9 is not a ZeRO stage"),
    ("rnu", "there is no command 'rnu': did you mean run?"),
    ("simulate --steps 0", "steps=0 is too small"),
    ("plan --gpus 4 --schedule zb-x", "schedule='zb-x' is not valid: use naive, gpipe, 1f1b"),
    ("plan --gpus 4 --hidden 1099511627776", "too many to be counted: use a smaller hidden"),
    ("plan --gpus 4 --reserve inf", "reserve='inf' is not valid: use a finite number"),
    ("plan --gpus 4 --batch 1099511627776", "is more than a search covers: use at most 1,000,000"),
    (
        "frobnicate",
        "there are run, demo, cancel, simulate, plan, clusters, calibrate, doctor, runs, show, compare, report,",
    ),
    ("show", "`lab show` needs RUN"),
    ("show latest", "there are no runs in"),
    ("compare latest -2", "there are no runs in"),
    ("report ../../etc", "there are no runs in"),
]


@pytest.mark.parametrize(("line", "words"), REFUSALS, ids=[line for line, _ in REFUSALS])
def test_bad_input_is_refused_in_one_sentence_before_any_process_starts(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    Path("broken.toml").write_text("[plan\n")
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and words in err
    assert err.startswith("lab: ") and err.count("\n") == 1 and err.rstrip()[-1] in ".?"
    assert (pretended.calls, pretended.warmed) == (0, 0) and not Path("runs").exists()


def test_a_refusal_with_json_is_one_object(pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--tp", "3", "--json"]) == 2
    found = one_object(capsys.readouterr().out)
    assert found == {
        "run": None,
        "status": "refused",
        "error": "tp=3 does not divide heads=4: use 1, 2 or 4.",
    }


def test_json_prints_the_summary_and_nothing_else(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *PLAN, "--json"]) == 0
    out, err = capsys.readouterr()
    found = one_object(out)
    assert found["status"] == "finished" and found["parity"]["passed"] is True
    assert found == json.loads((Path("runs") / found["run"] / "summary.json").read_text())
    assert "step 3/3  loss 5.0000" in err


def test_json_of_a_loss_that_is_no_number_is_null(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.lab.conftest._loss", lambda step: float("nan"))
    assert main(["run", "--json"]) == 1  # it cannot be shown equal to one process
    found = one_object(capsys.readouterr().out)
    assert found["steps"][0]["loss"] is None and found["parity"]["passed"] is False


def test_the_summary_shows_proof_time_memory_and_bytes(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *PLAN]) == 0
    out = capsys.readouterr().out
    for words in ("✔ equal to one process", "rank  d t p", "bubble", "predicted", "on the wire", "pipeline"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80
    assert main(["show", "latest"]) == 0
    assert capsys.readouterr().out == out


def test_a_run_that_differs_from_one_process_ends_with_status_1(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended.weights_off_by = 0.5
    assert main(["run", *PLAN]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "✘ differs from one process" in said and "loss 0 of 1.0e-05 allowed" in said
    assert "weights 5.0e-01 where 1.0e-05 is allowed (after step 0, block1 up.bias, rank 0)" in said


def test_a_failed_run_ends_with_status_1_and_names_the_rank(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended.ending = RunFailed(Failure("rank 5", "backward block2 mb1", "was killed by signal SIGKILL", "", ()))
    pretended.until = 1
    assert main(["run", *PLAN, "--json"]) == 1
    out, err = capsys.readouterr()
    found = one_object(out)
    assert found["status"] == "failed" and "rank 5 was killed by signal SIGKILL" in found["error"]
    assert f"run {found['run']} failed: rank 5" in err
    assert main(["show", "latest"]) == 0
    assert "✘ failed" in capsys.readouterr().out


def test_an_interrupted_run_ends_with_status_130(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended.ending, pretended.until = KeyboardInterrupt(), 1
    assert main(["run"]) == 130
    assert "was stopped; what it did so far is kept." in capsys.readouterr().err


def test_a_job_file_gives_the_defaults_and_options_override_it(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job.from_options(dp=2, pp=2, zero=2, sequence_parallel=True, partition=(1, 3), lr=0.01, tied=True)
    Path("job.toml").write_text(job.to_toml())
    assert main(["run", "--job", "job.toml", "--json"]) == 0
    run = one_object(capsys.readouterr().out)["run"]
    assert Job.from_toml(Path("runs") / run / "job.toml") == job
    line = "run --job job.toml --zero 1 --no-sequence-parallel --no-tied --partition 2,2 --lr 1e-4 --json"
    assert main(line.split()) == 0
    changed = Job.from_toml(Path("runs") / one_object(capsys.readouterr().out)["run"] / "job.toml")
    wanted = {"zero": 1, "sequence_parallel": False, "tied": False, "partition": (2, 2), "lr": 1e-4}
    assert changed == Job.from_options(job, **wanted)


@pytest.mark.parametrize("kind", [Model, Plan, Training])
def test_every_field_of_a_job_is_an_option_with_its_docstring(
    kind: type[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, doc in field_docs(kind).items():
        assert f"--{name.replace('_', '-')}" in shown and " ".join(doc.split()[:4]) in shown
    assert field_docs(kind).keys() == kind.__dataclass_fields__.keys()


def test_program_prints_what_the_plan_compiles_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["program", "--pp", "2", "--dp", "2", "--zero", "3"]) == 0
    assert Program.parse(capsys.readouterr().out) == compile_job(Job.from_options(pp=2, dp=2, zero=3))


def test_program_of_a_rank_is_its_lane_under_its_coordinate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["program", "--pp", "2", "--tp", "2", "--rank", "3"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# rank 3 of 4: data 0, tensor 1, pipeline 1\npipeline 1:\n  recv_act mb0 stage1 <-pp0\n")
    assert "pipeline 0:" not in out


def test_program_against_another_plan_shows_what_this_one_adds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["program", "--dp", "2", "--zero", "3", "--against", "--zero 0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "+   gather block0 all_gather @dp" in lines and "+   release block0" in lines
    assert not any(line.startswith("-   gather") for line in lines)
    assert main(["program", "--dp", "2", "--against", "--lr 0.5"]) == 0
    assert capsys.readouterr().out == "both plans compile to the same program\n"


def test_program_of_a_rank_as_json_is_its_lane_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["program", "--pp", "2", "--tp", "2", "--rank", "3", "--json"]) == 0
    (lane,) = one_object(capsys.readouterr().out)["lanes"]
    assert lane[0] == "recv_act mb0 stage1 <-pp0"


def test_a_report_as_json_names_its_run_and_its_file(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--json"]) == 0
    run = one_object(capsys.readouterr().out)["run"]
    assert main(["report", "latest", "-o", "r.html", "--json"]) == 0
    assert one_object(capsys.readouterr().out) == {"run": run, "report": str(Path("r.html").absolute())}


def test_the_demo_as_json_is_its_summary_and_where_the_report_is(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--json"]) == 0
    found = one_object(capsys.readouterr().out)
    report = found.pop("report")
    assert Path(report).is_file() and report == str(Path("demo-report.html").absolute())
    assert found == json.loads((Path("runs") / found["run"] / "summary.json").read_text())


def test_an_error_of_the_system_is_told_in_its_own_words(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretended.ending, pretended.until = OSError(24, "Too many open files"), 0
    assert main(["run"]) == 1
    assert capsys.readouterr().err.endswith("lab: Too many open files.\n")


def test_a_program_file_is_run_in_place_of_the_compiled_one(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["program", "--pp", "2"]) == 0
    text = capsys.readouterr().out
    Path("mine.txt").write_text("# mine\n" + text)
    assert main(["run", "--pp", "2", "--program", "mine.txt", "--json"]) == 0
    run = one_object(capsys.readouterr().out)["run"]
    assert Program.parse((Path("runs") / run / "program.txt").read_text()) == Program.parse(text)
    Path("mine.txt").write_text(text.replace("  forward block1 mb0 stage0\n", ""))
    assert main(["run", "--pp", "2", "--program", "mine.txt"]) == 2
    assert "forward block1 mb0" in capsys.readouterr().err


def test_a_schedule_file_is_run_in_place_of_the_plans_schedule(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.txt").write_text("F0 F1 B0 B1\nF0 B0 F1 B1  # the last rank\n")
    options = ["run", "--pp", "2", "--microbatches", "2", "--schedule-file", "mine.txt"]
    assert main([*options, "--json"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    made = Program.parse((Path("runs") / run / "program.txt").read_text())
    assert made == compile_job(Job.from_options(pp=2, microbatches=2))
    Path("mine.txt").write_text("F0 F1 B0\nF0 B0 F1 B1\n")
    assert main(options) == 2
    said = capsys.readouterr().err
    assert "the schedule file mine.txt cannot be run: pipeline 0" in said and "<-- here" in said


def test_runs_lists_newest_first_with_corrupt_ones_and_their_reason(
    pretended: PretendedLaunch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs"]) == 0
    assert "lab demo" in capsys.readouterr().out
    assert main(["run", "--json"]) == main(["run", "--dp", "2", "--json"]) == 0
    capsys.readouterr()
    assert main(["runs", "--json"]) == 0
    newest, oldest = one_object(capsys.readouterr().out)["runs"]
    assert newest["created"] > oldest["created"] and "dp2" in newest["run"]
    (Path("runs") / oldest["run"] / "run.json").write_text("{")
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    assert f"{oldest['run']} corrupt: run.json cannot be read" in out and newest["run"] in out
    assert main(["show", oldest["run"], "--json"]) == 1
    assert one_object(capsys.readouterr().out)["status"] == "corrupt"


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    line = f"{sys.executable} -m lab.cli program --pp 4 --microbatches 64 --batch 64 | head -n 1"
    done = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert done.stdout == "# each pipeline lane is run by 1 rank\n" and done.stderr == ""


def test_neither_the_package_nor_the_command_line_loads_torch_or_plotly() -> None:
    code = "import sys, lab; from lab.cli.parser import main; main(['program'])\n"
    code += "print([m for m in ('torch', 'plotly', 'pandas', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_folder_that_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SHARDLAB_RUNS", raising=False)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["runs"]) == 1
    assert "the folder in which this was started does not exist any more" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
