"""An axis is one record: one from outside runs, is proved, foretold, printed, drawn; an unknown one is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.cluster.cluster import load_cluster
from engine.job import rules
from engine.job.axes import AXES, Axis, scalar_axes
from engine.job.errors import JobRefused, Unknown
from engine.job.job import Job, Model
from engine.job.mesh import Mesh, mesh_of
from engine.model.buckets import buckets_of_pp_rank
from engine.model.families.gpt import GPTFamily
from engine.model.params import Param
from engine.planner.search import search
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.simulate import simulate
from engine.program.checks.check import ProgramError, check_program
from engine.program.compile import compile_job
from engine.program.kinds import Kind
from engine.program.program import Action, Program
from engine.program.streams import STREAMS
from lab.facade import Run
from lab.running.downscale import scaled_down
from lab.views.exports import export
from lab.views.figures.grid.grid_ranks import place
from lab.views.timeline import timeline_data
from lab.wording import axis_name, mesh_words
from tests.seams.whole_way import pictures, plugged_in, printed, run_and_prove

SMALL: dict[str, Any] = {
    "layers": 2, "hidden": 32, "heads": 4, "seq": 16, "microbatches": 2, "batch": 16, "steps": 2, "bucket_kb": 16,
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def replicas() -> Iterator[None]:
    with plugged_in("tests.seams.replicas", AXES, STREAMS):
        yield


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))


@pytest.fixture(scope="module")
def run(replicas: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("replicas") / "runs"))
        yield run_and_prove(**SMALL, dp=2, rp=2, zero=1)


def test_replicas_of_sharded_groups_run_with_parity_and_sum_slices(run: Run) -> None:
    assert run.job.world_size == 4 and run.summary["mesh"] == {"dp": 2, "tp": 1, "pp": 1, "rp": 2}
    mine = [row for row in run.recording.op_rows() if (row.rank, row.step, row.stream) == (1, 1, "rp")]
    slices = {b.name: b.shard * 4 for b in buckets_of_pp_rank(run.job, 0)}
    assert len(slices) > 1 and {row.unit: row.cost.logical_bytes for row in mine} == slices, "2(n-1)/n · S with n = 2"
    assert {tuple(row.peers) for row in mine} == {(1, 3)} and {row.op for row in mine} == {"all_reduce"}
    along = {row["axis"]: row for row in run.summary["communication"] if row["op"] == "all_reduce"}
    assert along["rp"]["logical_bytes"] == sum(slices.values())


@pytest.mark.parametrize(
    "plan",
    [
        {"rp": 2, "tp": 2, "sequence_parallel": True},
        {"rp": 2, "pp": 2, "tied": True, "microbatches": 4},
        {"rp": 2, "dp": 2, "zero": 0, "overlap": False},
        {"rp": 2, "dp": 2, "zero": 2},
        {"rp": 2, "dp": 2, "zero": 3, "order": "rp-dp-tp-pp"},
    ],
    ids=str,
)
def test_it_goes_with_every_other_axis_and_zero_stage(plan: dict[str, Any]) -> None:
    run = run_and_prove(**{**SMALL, **plan})
    assert any(row["axis"] == "rp" for row in run.summary["communication"])


def test_its_degree_is_an_option_that_travels_in_every_form_of_a_job(tmp_path: Path) -> None:
    job = Job.from_options(rp=2, dp=2, zero=1)
    assert job == Job.from_options(dp=2, zero=1, axes="rp=2") == Job.from_options(**job.options())
    (tmp_path / "job.toml").write_text(job.to_toml())
    assert Job.from_toml(tmp_path / "job.toml") == job
    (tmp_path / "other.toml").write_text("[plan]\nrp = 2\ndp = 2\nzero = 1\n")
    assert Job.from_toml(tmp_path / "other.toml") == job
    assert Job.from_options(job, rp=1) == Job.from_options(dp=2, zero=1)
    assert job.microbatch_size == 16 // (2 * 2 * 4) and mesh_words(job.plan).endswith("× 2 replica")
    assert scaled_down(Job.from_options(rp=8, tp=8, heads=8, batch=64)).plan.degrees["rp"] > 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"axes": "rp"}, "axes='rp' is not valid: use NAME=DEGREE for each axis, such as rp=2."),
        ({"axes": "rp=2,rp=2"}, "is not valid"),
        ({"axes": "dp=2"}, "names dp, which has an option of its own: use dp=N."),
        ({"axes": "cp=2"}, "there is no axis called 'cp': known are dp, tp, pp, rp."),
        ({"order": "tp-dp-pp-rp-rp"}, "does not name each axis once"),
        ({"order": "tp-pp", "rp": 2}, "does not name each axis once"),
        ({"rp": 3}, "dp=1 × rp=3 × microbatches=4 = 12 does not divide batch=16: use batch=12 or 24."),
    ],
)
def test_a_wrong_degree_is_refused_in_words(options: dict[str, Any], words: str) -> None:
    with pytest.raises(JobRefused) as refused:
        rules.check(Job.from_options(**options))
    assert words in str(refused.value)
    with pytest.raises(JobRefused, match="rp=0 is not valid"):
        Job.from_options(rp=0)
    with pytest.raises(JobRefused, match="no option called 'cp'"):
        Job.from_options(cp=2)


def test_the_mesh_has_a_coordinate_and_groups_on_it() -> None:
    mesh = Mesh(dp=2, tp=2, rp=3)
    assert mesh.size == 12 and mesh.order == ("tp", "dp", "pp", "rp"), "what the order leaves out varies slowest"
    at = mesh.coordinate(11)
    assert dict(at) == {"dp": 1, "tp": 1, "pp": 0, "rp": 2} and mesh.rank(**at) == 11
    assert str(at) == "data 1, tensor 1, pipeline 0, replica 2"
    assert mesh.group("rp", 1) == [1, 5, 9]
    assert Counter(mesh.replica(rank) for rank in range(12)) == dict.fromkeys(range(6), 2), "each twice, over tp"
    assert Mesh(dp=2).coordinate(1)["rp"] == 0 and "rp" not in Mesh(dp=2).axes
    assert scalar_axes(mesh.degrees) == ("tp", "pp", "dp", "rp"), "inside a replica of the model first"


def test_no_slice_is_summed_before_it_is_complete() -> None:
    job = Job.from_options(**SMALL, dp=2, rp=2, zero=2)
    lane = list(compile_job(job).lanes[0])
    check_program(Program((tuple(lane),)), job)
    late = next(i for i, a in enumerate(lane) if a.axis == "rp" and a.kind is Kind.REDUCE)
    for without, why in (
        (lane[:late] + lane[late + 1 :], "not reduced over rp before the norm"),
        ([lane[late], *lane[:late], *lane[late + 1 :]], "first"),
        ([*lane[: late - 1], *lane[late:]], r"needs wait head @dp first"),
    ):
        with pytest.raises(ProgramError, match=why):
            check_program(Program((tuple(without),)), job)


def test_parameters_cut_along_it_are_not_summed_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As experts are along their axis."""
    plain = GPTFamily.params

    def cut(self: GPTFamily, model: Model, tp: int, kind: str) -> tuple[Param, ...]:
        params = plain(self, model, tp, kind)
        return tuple(replace(p, placements={**p.placements, "rp": 0}) for p in params) if kind == "head" else params

    monkeypatch.setattr(GPTFamily, "params", cut)
    job = Job.from_options(**{**SMALL, "hidden": 24, "bucket_kb": 4000}, dp=2, rp=2)
    head, others = buckets_of_pp_rank(job, 0)
    assert (head.reduce_axes, others.reduce_axes) == (("dp",), ("dp", "rp")), "one set of placements a bucket"
    assert head.size == (256 * 24 + 24 + 24) // 2
    summed = {(a.unit, a.axis) for a in compile_job(job).lanes[0] if a.kind is Kind.REDUCE}
    assert summed == {("head", "dp"), (others.name, "dp"), (others.name, "rp")}

    def mixed(self: GPTFamily, model: Model, tp: int, kind: str) -> tuple[Param, ...]:
        first, *rest = plain(self, model, tp, kind)
        return (replace(first, placements={**first.placements, "rp": 0}), *rest)

    monkeypatch.setattr(GPTFamily, "params", mixed)
    with pytest.raises(ValueError, match="parameters of head are cut along rp and none: put each in a unit of its own"):
        buckets_of_pp_rank(Job.from_options(**{**SMALL, "hidden": 40}, rp=2), 0)


def test_terminal_and_figures_show_it(run: Run, tmp_path: Path) -> None:
    text = printed(run)
    assert "2 data × 1 tensor × 1 pipeline × 2 replica" in text
    assert "d t p r" in text and "replica" in text
    drawn = pictures(run)
    assert all(figure.data for figure in drawn.values())
    assert "replica groups" in [trace.name for trace in drawn["grid"].data]
    mesh = mesh_of(run.job)
    assert len({place(mesh, rank) for rank in range(mesh.size)}) == mesh.size, "no rank hides another"
    assert "blocks: replica (rp)" in drawn["grid"].layout.scene.xaxis.title.text
    assert "replica" in timeline_data(run.recording, run.job)["axes"]
    assert "replica" in run.report(tmp_path / "report.html").read_text(encoding="utf-8")
    for format in ("perfetto", "hta"):
        export(run, format, tmp_path / format)


def test_a_simulation_of_many_ranks_tells_those_apart_that_differ(run: Run) -> None:
    job = Job.from_options(**{**SMALL, "batch": 64}, dp=4, rp=8, zero=1)
    cluster = load_cluster("a100-dgx")
    made = simulate(job, cluster, compile_job(job), each_rank=False)
    assert len(made.stands_for) == 32 and len(set(made.ops["rank"].to_pylist())) < 32
    assert {"dp", "rp"} <= set(made.ops["stream"].to_pylist())


# -- what nobody knows


ELSEWHERE: dict[str, Callable[[], Any]] = {
    "mesh": lambda: Mesh(cp=2),
    "order": lambda: Mesh(("tp", "dp", "pp", "cp")),
    "coordinate": lambda: Mesh(dp=2).coordinate(0)["cp"],
    "rank": lambda: Mesh(dp=2).rank(cp=1),
    "groups": lambda: Mesh(dp=2).groups("cp"),
    "degree": lambda: Job().plan.degree("cp"),
    "plan": lambda: Job.from_options(axes="cp=2").plan.degrees,
    "world": lambda: Job.from_options(axes="cp=2").world_size,
    "parameter": lambda: Param("w", (4, 4), {"cp": 0}).local_shape({}),
    "scalars": lambda: scalar_axes(["dp", "cp"]),
    "words": lambda: axis_name("cp"),
    "reduction": lambda: rehearse(JOB, Program(((Action(Kind.REDUCE, BUCKET, axis="cp", op="all_reduce"),),))),
}
JOB = Job.from_options(**SMALL, dp=2)
BUCKET = buckets_of_pp_rank(JOB, 0)[0].name


@pytest.mark.parametrize("where", ELSEWHERE)
def test_nobody_leaves_an_unknown_axis_out(where: str) -> None:
    with pytest.raises(Unknown, match=r"no (axis|stream) called 'cp'"):
        ELSEWHERE[where]()


def test_an_axis_that_layers_would_have_to_know_cannot_be_added() -> None:
    with pytest.raises(AssertionError, match="ask for tp and pp by name"):
        Axis(name="etp", word="expert tensor", letter="e", divides="tensors")


def test_the_planner_refuses_what_it_does_not_search() -> None:
    with pytest.raises(JobRefused, match="axes=rp=2 are not planned for"):
        search(Job.from_options(rp=2), load_cluster("a100-dgx"), 8)
