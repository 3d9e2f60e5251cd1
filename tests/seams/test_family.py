"""A model family is one object: one with two kinds of block runs, is proved, counted, printed and drawn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

from engine.job import rules
from engine.job.errors import JobRefused, Unknown
from engine.job.families import FAMILIES
from engine.job.job import Job, Model
from engine.model.buckets import buckets_of_pp_rank
from engine.model.family import family_of
from engine.model.params import unit_params, unit_size
from engine.model.unit_kinds import UNIT_KINDS, kind_of
from engine.model.units import boundary_shapes, forward_cost, needs, output_shape, recomputes, stages
from engine.prediction import formulas
from engine.prediction.rehearsal.rehearse import rehearse
from engine.program.compile import compile_job
from engine.program.dryrun import unit_cost
from engine.program.passes.layers import expand_units
from engine.program.program import Action, Kind, Program
from lab.cli.options import Parser, add_job_options
from lab.facade import Run
from lab.running.downscale import scaled_down
from lab.views.figures.grid.grid import holds
from lab.wording import size_words
from tests.seams.whole_way import pictures, plugged_in, printed, run_and_prove

H, B = 32, 4  # hidden; samples of a micro-batch where dp = 2
MLP: dict[str, Any] = {"family": "mlp", "layers": 4, "hidden": H, "microbatches": 4, "batch": 32}
PLANS: list[dict[str, Any]] = [
    {},
    {"dp": 2, "tp": 2, "pp": 2, "zero": 1},
    {"dp": 2, "pp": 2, "zero": 3, "recompute": "full", "schedule": "gpipe"},
    {"dp": 2, "pp": 2, "zero": 2, "schedule": "zb-h1", "partition": (1, 3)},
    {"tp": 2, "pp": 2, "schedule": "interleaved", "chunks": 2, "overlap": False},
    {"tp": 2, "pp": 3, "layers": 5, "bucket_kb": 1},
]


@pytest.fixture(scope="module", autouse=True)
def mlp() -> Iterator[None]:
    with plugged_in("tests.seams.mlp", FAMILIES, UNIT_KINDS):
        yield


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("mlp") / "runs"))
        yield


@pytest.fixture(scope="module")
def run() -> Run:
    return run_and_prove(**MLP, dp=2, pp=2)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: "-".join(map(str, plan.values())) or "alone")
def test_it_runs_under_every_kind_of_plan_with_parity_and_as_predicted(plan: dict[str, Any]) -> None:
    proved = run_and_prove(**MLP | plan)
    assert proved.summary["steps"][0]["loss"] > 0


def test_two_kinds_of_block_cost_what_each_costs(run: Run) -> None:
    """By hand: widen multiplies by [3h, h] and [2h, 3h], narrow by [2h, 2h] and [h, 2h]; backward twice that."""
    flops = {(row.kind, kind_of(row.unit).name): row.cost.flops for row in run.recording.op_rows() if row.kind in BOTH}
    for name, products in (("widen", 9 * H * H), ("narrow", 6 * H * H)):
        assert flops["forward", name] == 2 * B * products
        assert flops["backward", name] == 2 * flops["forward", name]


BOTH = ("forward", "backward")


def test_a_message_has_the_shape_of_what_the_stage_before_gives() -> None:
    job = Job.from_options(**MLP, pp=4)
    assert boundary_shapes(job) == ((1, 8, 2 * H), (1, 8, H), (1, 8, 2 * H))
    sent = {row.stage: row.cost.logical_bytes for row in rehearse(job).op_rows() if row.kind == "send_act"}
    assert sent == {0: 4 * 8 * 2 * H, 1: 4 * 8 * H, 2: 4 * 8 * 2 * H}


def test_activations_parameters_and_flops_are_counted_where_there_is_no_formula() -> None:
    job = Job.from_options(**MLP)
    b = job.microbatch_size
    entry, widen, narrow, exit_ = H * 16 + H, 9 * H * H + 7 * H, 6 * H * H + 7 * H, 8 * H
    assert formulas.parameters(job) == entry + 2 * (widen + narrow) + exit_
    # input, mean and 1/deviation of the norm, its output, input and output of GELU
    assert formulas.activation_bytes(job, "widen0") == 4 * b * (H + 2 + H + 3 * H + 3 * H)
    assert formulas.activation_bytes(job, "narrow3") == 4 * b * (2 * H + 2 + 2 * H + 2 * H + 2 * H)
    one = 2 * b * (H * 16 * 2 + 3 * (2 * 9 * H * H + 2 * 6 * H * H + 8 * H))  # nothing goes back from the entry
    assert formulas.model_flops(job) == one * 4


def test_stages_are_balanced_by_what_each_kind_costs() -> None:
    job = Job.from_options(**MLP | {"layers": 8}, pp=4)
    costs = [sum(forward_cost(job.model, unit) for unit in units) for units in stages(job)]
    assert max(costs) == 2 * 15 * H * H + 2 * 16 * H
    assert [unit for units in stages(job) for unit in units] == [*family_of(job.model).units(job.model)]


@pytest.mark.parametrize("layers", range(2, 9))
@pytest.mark.parametrize("pp", range(2, 6))
def test_no_other_partition_has_a_cheaper_dearest_stage(layers: int, pp: int) -> None:
    job = Job.from_options(**MLP | {"layers": layers}, pp=pp)
    if pp > layers:
        return

    def dearest(sizes: tuple[int, ...] | None) -> float:
        dealt = stages(replace(job, plan=replace(job.plan, partition=sizes)))
        return max(sum(forward_cost(job.model, unit) for unit in units) for units in dealt)

    cuts = combinations(range(1, layers), pp - 1)
    every = [tuple(b - a for a, b in pairwise((0, *cut, layers))) for cut in cuts]
    assert dearest(None) == min(map(dearest, every))


def test_terminal_and_report_say_what_it_is(run: Run, tmp_path: Path) -> None:
    text = printed(run)
    assert "An MLP: 4 layers, hidden 32" in text and "heads" not in text.split("training")[0]
    assert "An MLP of 0.03 million parameters (4 layers, hidden 32), trained" in run.report(
        tmp_path / "report.html"
    ).read_text(encoding="utf-8")


def test_every_figure_draws_it(run: Run) -> None:
    drawn = pictures(run)
    assert all(figure.data for figure in drawn.values())
    assert holds(run.job, 0) == "entry, widen 0, narrow 1"
    assert "widen0" in drawn["shards"].layout.title.text
    whole = replace(run.job, plan=replace(run.job.plan, pp=1))
    assert holds(whole, 0) == "entry, widens 0, 2, narrows 1, 3, exit"


def test_option_and_job_file_name_it_and_its_rules_are_told(tmp_path: Path) -> None:
    parser = Parser()
    add_job_options(parser)
    assert "One of gpt, mlp." in " ".join(parser.format_help().split())
    job = Job.from_options(**MLP, dp=2)
    (tmp_path / "job.toml").write_text(job.to_toml(), encoding="utf-8")
    assert Job.from_toml(tmp_path / "job.toml") == job == Job.from_options(**job.options())
    for options, words in (
        ({"tp": 2, "sequence_parallel": True}, "family=mlp has no sequence to split"),
        ({"recompute": "selective"}, "family=mlp has no attention to recompute"),
        ({"tp": 16}, "tp=16 does not divide hidden=32 and 8: use 1, 2, 4 or 8"),
    ):
        with pytest.raises(JobRefused, match=words):
            rules.check(Job.from_options(job, **options))
    assert rules.notes(Job.from_options(job, heads=8)) == ["heads=8 has no effect with family=mlp."]
    assert scaled_down(Job.from_options(job, dp=64, batch=256)).model.family == "mlp"


UNHEARD_OF = Job(model=Model(family="moe"))
OF_FAMILY: list[Callable[[Job], Any]] = [
    rules.check,
    rules.notes,
    compile_job,
    stages,
    rehearse,
    formulas.parameters,
    formulas.model_flops,
    formulas.predicted_communication,
    lambda job: formulas.activation_bytes(job, "block0"),
    lambda job: buckets_of_pp_rank(job, 0),
    lambda job: size_words(job.model),
]


@pytest.mark.parametrize("consumer", OF_FAMILY)
def test_nobody_takes_an_unknown_family_for_a_gpt(consumer: Callable[[Job], Any]) -> None:
    with pytest.raises(Unknown, match="no model family called 'moe'"):
        consumer(UNHEARD_OF)


GPT_JOB = Job()
OF_UNIT: list[Callable[[str], Any]] = [
    kind_of,
    lambda unit: unit_params(GPT_JOB.model, 1, unit),
    lambda unit: unit_size(GPT_JOB.model, {}, unit),
    lambda unit: recomputes(Job.from_options(recompute="full"), unit),
    lambda unit: output_shape(GPT_JOB, unit),
    lambda unit: formulas.activation_bytes(GPT_JOB, unit),
    lambda unit: formulas.held_for_weight_bytes(GPT_JOB, unit),
    lambda unit: unit_cost(Action(Kind.FORWARD, unit)),
    lambda unit: expand_units(((Action(Kind.BACKWARD_INPUT, microbatch=0, stage=0),),), [[unit]]),
]


@pytest.mark.parametrize("consumer", OF_UNIT)
@pytest.mark.parametrize("unit", ["expert3", "block", "head0"])
def test_nobody_takes_an_unknown_kind_of_unit_for_a_block(consumer: Callable[[str], Any], unit: str) -> None:
    with pytest.raises(Unknown):
        consumer(unit)


def test_a_unit_of_another_family_is_none_of_a_gpt() -> None:
    for asked in (lambda: unit_params(GPT_JOB.model, 1, "widen0"), lambda: unit_size(GPT_JOB.model, {}, "widen0")):
        with pytest.raises(Unknown, match="no unit of a GPT called 'widen'"):
            asked()
    for formula in (formulas.activation_bytes, formulas.held_for_weight_bytes):
        with pytest.raises(Unknown, match="no unit of a GPT called 'widen'"):
            formula(GPT_JOB, "widen0")
    assert needs(GPT_JOB.model, "head") == ("head",)


def test_a_program_names_units_of_known_families_only() -> None:
    assert Program.parse("pipeline 0:\n  forward widen2 mb0 stage0\n").lanes[0][0].unit == "widen2"
    with pytest.raises(ValueError, match="cannot read 'expert3'"):
        Program.parse("pipeline 0:\n  forward expert3 mb0 stage0\n")


def test_a_wish_for_an_unknown_family_is_refused_in_words() -> None:
    with pytest.raises(JobRefused, match="family='moe' is not valid: use gpt or mlp"):
        Job.from_options(family="moe")


def test_the_planner_refuses_what_it_does_not_know() -> None:
    import lab

    with pytest.raises(JobRefused, match="family=mlp is not planned for: use family=gpt, or `lab simulate`"):
        lab.plan(model=Job.from_options(**MLP), gpus=8)


def test_what_is_plugged_in_belongs_to_what_results_are_kept_under() -> None:
    from engine.execution.reference import source
    from engine.job.registry import plug_in, unplug

    with_it = source()
    unplug("tests.seams.mlp")
    without = source()
    plug_in("tests.seams.mlp")
    assert with_it == source() != without


def test_the_registries_are_full_as_soon_as_the_engine_is_imported_and_cost_no_large_import() -> None:
    script = (
        "import sys, engine; from engine.job.families import FAMILIES; from engine.job.schedules import SCHEDULES;"
        "print(*FAMILIES.names, *SCHEDULES.names, *{'numpy', 'pydantic', 'torch'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gpt", "naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"]
