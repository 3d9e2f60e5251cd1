"""A schedule is one object: one from outside runs, is proved, predicted, printed and drawn; an unknown one is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from engine.job import rules
from engine.job.errors import JobRefused, Unknown
from engine.job.job import Job, Plan
from engine.job.schedules import SCHEDULES
from engine.model.units import pp_rank_of_stage
from engine.prediction.formulas import bubble_formula, in_flight_formula
from engine.program.compile import compile_job
from engine.program.dryrun import dry_run
from lab.cli.options import Parser, add_job_options
from lab.cli.terminal.run import bubble
from lab.facade import Run
from lab.running.downscale import scaled_down
from lab.views.figures.pipeline.bubble_curve import curve_points
from lab.views.report.words import job_in_words
from lab.widgets.explorer.knobs import knobs, turned
from lab.wording import percent
from tests.seams.whole_way import pictures, plugged_in, printed, run_and_prove

PAIRS: dict[str, Any] = {"schedule": "pairs", "layers": 4, "hidden": 32, "seq": 16, "microbatches": 4, "batch": 16}


@pytest.fixture(scope="module", autouse=True)
def pairs() -> Iterator[None]:
    with plugged_in("tests.seams.pairs", SCHEDULES):
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("pairs") / "runs"))
        yield run_and_prove(**PAIRS, dp=2, pp=2, zero=1, tied=True)


def test_a_made_up_schedule_runs_in_its_own_order_with_parity_and_as_predicted(run: Run) -> None:
    kinds = [row.kind[0] for row in run.recording.op_rows() if (row.rank, row.step, row.unit) == (0, 0, "block2")]
    assert kinds == list("ffbbffbb"), "block2 is of the last stage, which lies on the first rank"


def test_its_bubble_is_counted_where_it_gives_no_formula(run: Run) -> None:
    # each pair goes up and down alone: with p = 2 a rank works 2·(1 + 2) of 2·3 + 3 slots, by hand
    counted = dry_run(compile_job(run.job)).bubble()
    assert counted == Fraction(1, 3)
    assert bubble_formula(run.job) is None
    assert run.summary["bubble"]["formula"] is None
    assert run.summary["bubble"]["replayed"] == pytest.approx(float(counted))
    assert [in_flight_formula(run.job, pp_rank) for pp_rank in range(2)] == [2, 2]
    assert curve_points(run.job, 9) == [(2, pytest.approx(1 / 3)), (4, pytest.approx(1 / 3)), (8, pytest.approx(1 / 3))]


def test_terminal_and_report_say_its_name_and_no_other_schedules_formula(run: Run) -> None:
    text = printed(run)
    assert "pairs" in text and "no formula known" in text and "p−1" not in text
    assert "(p−1)" not in str(bubble(run.summary, run))
    assert "the Pairs schedule" in job_in_words(run.job)


def test_every_figure_draws_it_under_its_own_name(run: Run, tmp_path: Path) -> None:
    drawn = pictures(run)
    assert all(figure.data for figure in drawn.values())
    assert drawn["timeline"].layout.title.text.count("no formula is known") == 1
    assert any("Pairs" in text for text in _texts(drawn["schedules"]))
    assert drawn["bubble curve"].data[0].name == "Pairs, p=2: counted in slots"
    assert percent(1 / 3) in drawn["bubble curve"].layout.title.text
    assert "Pairs" in run.report(tmp_path / "report.html").read_text(encoding="utf-8")


def _texts(figure: Any) -> list[str]:
    return [str(part.text) for part in (*figure.layout.annotations, figure.layout.title)]


def test_options_form_and_knobs_offer_it_and_its_rule_is_told() -> None:
    parser = Parser()
    add_job_options(parser)
    assert "pairs" in parser.format_help()
    assert "pairs" in knobs()["schedule"].values
    assert turned(Job.from_options(pp=2, cluster="toy-2x4"), "schedule", "pairs").plan.schedule == "pairs"
    with pytest.raises(JobRefused, match="pairs takes micro-batches two by two and microbatches=3"):
        rules.check(Job.from_options(schedule="pairs", pp=2, microbatches=3, batch=12))
    with pytest.raises(JobRefused, match="chunks=2 needs schedule=interleaved; schedule=pairs has one chunk"):
        rules.check(Job.from_options(schedule="pairs", pp=2, chunks=2))
    assert scaled_down(Job.from_options(schedule="pairs", pp=64)).plan.schedule == "pairs"


UNHEARD_OF = Job(plan=Plan(schedule="zb-h3", pp=2))
CONSUMERS: list[Callable[[Job], Any]] = [
    rules.check,
    compile_job,
    bubble_formula,
    lambda job: in_flight_formula(job, 0),
    lambda job: Job().under(job.plan.schedule),
    lambda job: pp_rank_of_stage(job.plan, 0),
    scaled_down,
    job_in_words,
    lambda job: curve_points(job, 8),
]


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_nobody_takes_an_unknown_schedule_for_another(consumer: Callable[[Job], Any]) -> None:
    with pytest.raises(Unknown, match="no schedule called 'zb-h3': did you mean zb-h"):
        consumer(UNHEARD_OF)


def test_a_wish_for_an_unknown_schedule_is_refused_in_words() -> None:
    with pytest.raises(JobRefused, match="schedule='zb-h3' is not valid: use naive, gpipe, "):
        Job.from_options(schedule="zb-h3")
    with pytest.raises(Unknown, match="zb-h3"):
        knobs()["schedule"].text("zb-h3")
