"""A selected rank is marked in every figure, and what it does or sends is what was recorded."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from engine.cluster.cluster import load_cluster
from engine.job.job import Job
from engine.job.mesh import mesh_of
from lab import analysis
from lab.analysis.step.activity import activities
from lab.views import figures
from lab.views.figures.grid.grid import node_grid
from lab.views.figures.style.selected_rank import MARK
from tests.lab.fake_run import fake_run, simulated_run
from tests.lab.synthetic import synthetic

CUBE = Job.from_options(dp=2, tp=2, pp=2, zero=1)
PIPELINE = Job.from_options(pp=4, microbatches=8, layers=4)
LARGE = Job.from_options(dp=16, tp=4, pp=2, batch=64, cluster="a100-dgx")


def ticks(fig: go.Figure) -> set[str]:
    """The marked names on the axes."""
    names = [*(fig.layout.xaxis.ticktext or ()), *(fig.layout.yaxis.ticktext or ())]
    return {name for name in names if MARK in name and "<b>" in name and "3" in name}


@pytest.mark.parametrize("name", ["memory", "bubble", "communication_matrix"])
def test_a_selected_rank_has_a_pointed_name_and_a_frame(name: str) -> None:
    fig = getattr(figures, name)(fake_run(CUBE), selected=3)
    assert fig.layout.shapes and ticks(fig)
    plain = getattr(figures, name)(fake_run(CUBE))
    assert not plain.layout.shapes and not ticks(plain)


@pytest.mark.parametrize("name", ["grid", "memory", "bubble", "communication_matrix", "memory_over_time", "ledger"])
def test_a_rank_that_is_not_in_the_job_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="selected=8 is not a rank of this job: use 0 to 7"):
        getattr(figures, name)(fake_run(CUBE), selected=8)


@pytest.mark.parametrize("name", ["grid", "memory", "bubble", "communication_matrix", "memory_over_time", "ledger"])
def test_ranks_that_another_stands_for_can_be_selected_too(name: str) -> None:
    run = simulated_run(LARGE)
    assert run.recording.stands_for
    assert getattr(figures, name)(run, selected=101).layout.title.text


@pytest.mark.parametrize("rank", [0, 3, 6])
def test_the_selected_ranks_groups_are_the_meshs(rank: int) -> None:
    fig, mesh = figures.grid(fake_run(CUBE), selected=rank), mesh_of(CUBE)
    for axis, name in (("dp", "data"), ("tp", "tensor"), ("pp", "pipeline")):
        own = mesh.group(axis, rank)
        line = next(t for t in fig.data if t.name == f"{name} group: ranks {', '.join(map(str, own))}")
        others = next(t for t in fig.data if t.name == f"{name} groups")
        at = [tuple(mesh.coordinate(r).values()) for r in own]
        assert list(zip(line.x, line.y, line.z, strict=True))[:2] == at
        assert line.line.width > others.line.width and others.opacity < 1


def test_the_grid_by_node_says_which_axes_leave_a_node() -> None:
    job = Job.from_options(dp=2, tp=2, pp=2, cluster="toy-2x4")
    fig = node_grid(job, load_cluster("toy-2x4"))
    words = "8 ranks on 2 nodes of toy-2x4: pipeline groups cross nodes, data and tensor groups stay inside"
    assert fig.layout.title.text == words
    sizes = {t.name: len(t.x) for t in fig.data if t.name in ("node 0", "node 1")}
    assert sizes == {"node 0": 4, "node 1": 4}
    assert len({t.marker.symbol for t in fig.data if t.name in sizes}) == 2


def test_activity_at_a_time_is_the_operation_at_that_time() -> None:
    recording = synthetic(PIPELINE)  # a forward takes 1 ms, a backward 2, messages nothing
    at = {ms: activities(recording, 1, round(ms * 1e6)) for ms in (0.5, 3.5, 32.5)}
    assert at[0.5][0].name.startswith("forward block0 mb0")
    assert [at[0.5][r].kind for r in (1, 2, 3)] == ["idle"] * 3
    # 1F1B: after p−1 = 3 ms the last stage begins its first forward, the first its fourth
    assert (at[3.5][0].kind, at[3.5][0].microbatch) == ("forward", 3)
    assert (at[3.5][3].kind, at[3.5][3].microbatch) == ("forward", 0)
    # the last of 3·(8+3) = 33 ms: only the first stage works, on its last backward
    assert (at[32.5][0].kind, at[32.5][0].microbatch) == ("backward", 7)
    assert at[32.5][3].kind == "idle" and "rank 0" in at[32.5][3].name


def test_the_grid_by_activity_counts_who_works() -> None:
    title = figures.grid(fake_run(CUBE), "activity", at_ms=0.0).layout.title.text
    assert title.startswith("0 µs into the step: ") and title.endswith("idle")


def test_the_ledger_is_the_selected_ranks_own() -> None:
    run = fake_run(CUBE)
    for rank in (0, 5):
        mine = [r for r in run.recording.ops_of(1).to_pylist() if r["rank"] == rank and r["stream"] != "compute"]
        rows = analysis.ledger(run.recording, CUBE, 1, rank)
        assert sum(row["count"] for row in rows) == len(mine)
        assert sum(row["logical_bytes"] for row in rows) == sum(r["logical_bytes"] for r in mine)
    ends = {rank: {row["op"] for row in analysis.ledger(run.recording, CUBE, 1, rank)} for rank in (0, 5)}
    assert "send_act" in ends[0] and "recv_act" in ends[5]


def test_several_ranks_share_one_scale_of_bytes() -> None:
    run = fake_run(CUBE)
    fig = figures.memory_over_time(run, ranks=(0, 4))
    assert fig.layout.yaxis.range == fig.layout.yaxis2.range
    named = [a.text for a in fig.layout.annotations if a.text.startswith("<b>Rank")]
    assert named == ["<b>Rank 0</b>", "<b>Rank 4</b>"]


def test_the_predicted_peak_is_a_line_in_memory_over_time() -> None:
    run = fake_run(CUBE)
    expected = run.summary["memory"]["predicted_per_rank"][0]["total_peak"]
    (line,) = figures.memory_over_time(run).layout.shapes
    trace = figures.memory_over_time(run).data[0]
    scale = 1e6 if "MB" in figures.memory_over_time(run).layout.yaxis.title.text else 1e3
    assert line.y0 == pytest.approx(expected / scale) and trace.stackgroup
