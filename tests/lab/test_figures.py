"""Figures: what they show equals what was recorded, titles tell the number, colours can be told apart."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io
import pytest

from engine.job.job import Job
from engine.job.mesh import mesh_of
from lab import analysis
from lab.analysis.step.time_shares import time_shares
from lab.views import figures
from lab.views.figures.communication.communication import communication_figure, matrix_figure
from lab.views.figures.grid.grid import grid_figure, holds
from lab.views.figures.memory.memory import memory_figure
from lab.views.figures.memory.memory_time import memory_over_time_figure
from lab.views.figures.pipeline.bubble import bubble_figure
from lab.views.figures.style.clock import time_axis
from lab.views.figures.style.palette import PALETTES, Theme
from lab.views.figures.timeline.lanes import lay_out
from lab.views.figures.timeline.raster import CELLS, compute_shares
from lab.views.figures.timeline.timeline import timeline_figure
from lab.wording import nbytes, seconds
from tests.lab.fake_run import fake_run
from tests.lab.synthetic import LIFELIKE, Costs, op, recording_of, synthetic

PIPELINE = Job.from_options(pp=4, microbatches=8, layers=4)
CUBE = Job.from_options(dp=2, tp=2, pp=2, zero=1)
THEMES: tuple[Theme, ...] = ("light", "dark")
EVERY = ("timeline", "grid", "memory", "memory_over_time", "communication", "communication_matrix", "bubble")


def named(fig: go.Figure, name: str) -> Any:
    return next(trace for trace in fig.data if trace.name == name)


# -- timeline


def test_the_timelines_bars_add_up_to_the_time_each_kind_took() -> None:
    recording = synthetic(PIPELINE)
    fig = timeline_figure(recording, PIPELINE, step=1)
    # 4 stages × 8 micro-batches × 1 ms of forward and twice that of backward, of one block each
    assert sum(named(fig, "forward").x) == pytest.approx(32)
    assert sum(named(fig, "backward").x) == pytest.approx(64)
    # and 3 idle of every 11 of the time, formula (p−1)/(m+p−1)
    assert sum(named(fig, "idle").x) / (4 * 33) == pytest.approx(3 / 11)


def test_under_zb_v_first_and_last_stage_share_a_rank() -> None:
    job = Job.from_options(pp=2, schedule="zb-v", chunks=2, partition=(1, 1, 1, 1))
    assert [holds(job, z) for z in (0, 1)] == ["embedding, blocks 0, 3, head", "blocks 1–2"]


def test_weight_gradients_are_drawn_apart_from_the_backward_they_are_split_from() -> None:
    job = Job.from_options(pp=2, microbatches=4, layers=2, schedule="zb-h1")
    fig = timeline_figure(synthetic(job), job, step=1)
    # 2 stages × 4 micro-batches × 1 ms of each part, of one block each
    assert sum(named(fig, "backward").x) == sum(named(fig, "weight gradients").x) == pytest.approx(8)
    assert named(fig, "backward").marker.color != named(fig, "weight gradients").marker.color
    few = Job.from_options(pp=2, microbatches=1, layers=2, schedule="zb-h1")
    title = timeline_figure(synthetic(few), few, step=1).layout.title.text
    assert title.endswith("no formula is known for this program")


def test_the_timelines_title_gives_bubble_definition_and_formula() -> None:
    title = timeline_figure(synthetic(PIPELINE), PIPELINE, step=1).layout.title.text
    assert title == ("Bubble 27 % = idle ÷ total on the compute streams of step 1; 1F1B formula 27 %")


def test_bars_start_where_the_operation_started_and_say_how_long_it_took() -> None:
    row = op(kind="forward", name="forward block0 mb0", start_ns=4_000_000, end_ns=6_500_000, microbatch=0)
    early = op(seq=1, kind="backward", name="backward block0 mb0", start_ns=1_000_000, end_ns=2_000_000)
    bar = named(timeline_figure(recording_of([row, early]), Job(), step=0), "forward")
    assert (bar.base[0], bar.x[0]) == (3.0, 2.5)
    assert bar.customdata[0] == "<b>forward block0 mb0</b>, rank 0<br>2.5 ms, from 3 ms on"


def test_a_message_box_says_its_bytes_and_ranks() -> None:
    fig = timeline_figure(synthetic(PIPELINE, Costs(lambda a: 1)), PIPELINE, step=1)
    hover = named(fig, "pipeline messages").customdata[0]
    assert "1 kB by the algorithm, 1 kB on the wire" in hover
    assert "pipeline axis, ranks" in hover


def test_idle_boxes_name_the_action_and_rank_they_wait_for() -> None:
    fig = timeline_figure(synthetic(PIPELINE), PIPELINE, step=1)
    assert any("waits for backward block1 mb0 stage1 on rank 1" in h for h in named(fig, "idle").customdata)


def test_micro_batch_numbers_stand_only_where_they_fit() -> None:
    def texts(microbatches: int) -> list[str]:
        job = Job.from_options(pp=2, microbatches=microbatches, batch=microbatches)
        fig = timeline_figure(synthetic(job), job, step=1)
        return [t for trace in fig.data if trace.type == "scatter" for t in trace.text]

    assert sorted(set(texts(4))) == ["0", "1", "2", "3"]
    assert texts(128) == []


def test_ranks_stand_in_pipeline_order_whatever_their_numbers() -> None:
    job = Job.from_options(dp=2, pp=2, order="pp-tp-dp")
    fig = timeline_figure(synthetic(job), job, step=1)
    assert [t.split("<")[0] for t in fig.layout.yaxis.ticktext[:4]] == [
        "rank 0",
        "rank 2",
        "rank 1",
        "rank 3",
    ]


def test_idle_is_hatched_in_every_theme() -> None:
    for theme in THEMES:
        idle = named(timeline_figure(synthetic(PIPELINE), PIPELINE, step=1, theme=theme), "idle")
        assert idle.marker.pattern.shape == "/"


def test_many_operations_are_drawn_as_a_raster_that_leaves_no_time_out() -> None:
    job = Job.from_options(dp=8, tp=2, pp=4, microbatches=16, batch=128)
    recording = synthetic(job, LIFELIKE, steps=2)
    fig = timeline_figure(recording, job, step=1)
    assert {trace.type for trace in fig.data} == {"heatmap"}
    shares, edges = compute_shares(lay_out(analysis.step_ops(recording, 1), mesh_of(job)))
    assert len(edges) == CELLS + 1
    assert shares.sum(axis=0) == pytest.approx(np.ones((64, CELLS)))
    assert shares[-1].mean() == pytest.approx(analysis.bubble(recording, job, 1))


# -- grid


def test_the_grid_puts_data_tensor_and_pipeline_on_x_y_and_z() -> None:
    ranks = grid_figure(CUBE).data[-1]
    at = {text.split(":")[0]: xyz for text, *xyz in zip(ranks.text, ranks.x, ranks.y, ranks.z, strict=True)}
    # tensor fastest, then data, then pipeline
    assert at["1"] == [0, 1, 0] and at["2"] == [1, 0, 0] and at["4"] == [0, 0, 1]


def test_the_grid_says_which_layers_a_rank_holds() -> None:
    assert [holds(CUBE, z) for z in (0, 1)] == ["embedding, blocks 0–1", "blocks 2–3, head"]
    chunks = Job.from_options(pp=2, chunks=2, schedule="interleaved", layers=4)
    assert holds(chunks, 0) == "embedding, blocks 0, 2"


def test_without_stages_the_grid_names_no_layers_for_all_ranks_hold_the_same() -> None:
    assert grid_figure(Job.from_options(dp=4)).data[-1].text == ("0", "1", "2", "3")


def test_lines_join_the_groups_of_each_axis_that_has_more_than_one_rank() -> None:
    fig = grid_figure(Job.from_options(dp=2, pp=2))
    assert [t.name for t in fig.data if t.mode == "lines"] == ["data groups", "pipeline groups"]


def test_the_grids_title_names_the_rank_with_most() -> None:
    fig = grid_figure(CUBE, {r: 1000.0 * (r + 1) for r in range(8)}, colour="memory")
    title = fig.layout.title.text
    assert title == "2 data × 2 tensor × 2 pipeline = 8 ranks; most peak memory: rank 7, 8 kB"


# -- memory


def peaks(rank: int, total: int) -> dict[str, int]:
    return {
        "rank": rank,
        "params": 100,
        "grads": 100,
        "optimizer": 200,
        "activations_peak": 50,
        "gathered_peak": 0,
        "buffers_peak": 30,
        "total_peak": total,
    }


def test_memory_bars_stack_the_categories_and_the_mark_is_the_highest_total() -> None:
    fig = memory_figure([peaks(0, 460), peaks(1, 470)], [peaks(0, 455), peaks(1, 455)])
    buffers = [t for t in fig.data if t.name == "buffers"]
    assert [t.base[0] + t.y[0] for t in buffers] == [480, 480]
    assert list(named(fig, "highest total at one time").y) == [460, 470]
    assert fig.layout.title.text == "Rank 1 peaks highest: 470 B at one time; predicted 455 B"


def test_predicted_memory_is_hatched_and_beside_the_measured() -> None:
    fig = memory_figure([peaks(0, 460)], [peaks(0, 455)])
    measured, predicted = (t for t in fig.data if t.name == "parameters")
    assert predicted.marker.pattern.shape == "/" and measured.marker.pattern.shape is None
    assert measured.x[0] < 0 < predicted.x[0]


def test_memory_over_time_marks_the_peak_of_the_whole() -> None:
    fig = memory_over_time_figure(fake_run(CUBE).recording, 0)
    total = analysis.memory_peaks(fake_run(CUBE).recording)[0]["total_peak"]
    assert fig.layout.annotations[0].text == f"peak {nbytes(total)}"


# -- communication


def test_communication_shows_counted_predicted_and_wire_bytes_side_by_side() -> None:
    row = {
        "axis": "dp", "op": "reduce_scatter", "count": 2,
        "logical_bytes": 1000, "wire_bytes": 2000, "predicted_bytes": 990,
    }  # fmt: skip
    fig = communication_figure([row])
    assert {t.name: t.x[0] for t in fig.data} == {
        "counted, by the algorithm": 1000, "predicted by the formula": 990, "on the wire": 2000,
    }  # fmt: skip
    assert fig.layout.title.text == (
        "Most bytes: data reduce-scatter, 1 kB per rank and step; 0 of 1 predictions exact"
    )


def test_the_matrix_title_names_the_busiest_link() -> None:
    fig = matrix_figure(np.array([[0, 5], [2000, 0]]))
    assert fig.layout.title.text == "Busiest link: rank 1 to rank 0, 2 kB per step"


# -- shares of time


def test_each_ranks_shares_add_up_to_the_whole_step() -> None:
    recording = synthetic(CUBE, LIFELIKE)
    start, end = analysis.step_window(recording, 1)
    for row in time_shares(recording, 1).values():
        assert sum(row.values()) == pytest.approx((end - start) / 1e9)
    assert sum(sum(t.x) for t in bubble_figure(recording, CUBE, step=1).data) == pytest.approx(8)


def test_the_main_cause_of_idle_time_is_in_the_title() -> None:
    title = bubble_figure(synthetic(PIPELINE), PIPELINE, step=1).layout.title.text
    assert title.startswith("Computing 73 %, idle 27 % (largest part, ")
    assert title.endswith("waits for another rank to compute)")


# -- all of them


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("theme", THEMES)
def test_every_figure_is_made_for_every_theme_and_has_a_title(name: str, theme: Theme) -> None:
    fig = getattr(figures, name)(fake_run(CUBE), theme=theme)
    assert fig.layout.title.text
    assert fig.layout.template.layout.paper_bgcolor == PALETTES[theme].paper


@pytest.mark.parametrize("name", EVERY)
def test_a_run_without_a_single_step_gets_figures_that_say_so(name: str) -> None:
    fig = getattr(figures, name)(fake_run(CUBE, steps=0))
    assert fig.layout.title.text


@pytest.mark.parametrize("name", EVERY)
def test_one_process_gets_every_figure_too(name: str) -> None:
    assert getattr(figures, name)(fake_run(Job())).layout.title.text


def test_no_renderer_offers_to_upload_a_figure() -> None:
    for name in ("notebook", "jupyterlab", "browser", "plotly_mimetype"):
        config = plotly.io.renderers[name].config
        assert config["showSendToCloud"] is False and config["displaylogo"] is False


def test_figures_hold_no_address_outside_this_machine() -> None:
    for name in EVERY:
        assert "http" not in json.dumps(json.loads(getattr(figures, name)(fake_run(CUBE)).to_json()))


def test_bytes_and_times_are_written_with_three_digits_and_their_unit() -> None:
    assert [nbytes(v) for v in (0, 512, 1000, 123_456, 2.5e9)] == ["0 B", "512 B", "1 kB", "123 kB", "2.5 GB"]
    assert [seconds(v) for v in (1.5, 0.02, 8.5e-5)] == ["1.5 s", "20 ms", "85 µs"]


def test_long_steps_are_labelled_in_seconds_and_short_ones_in_milliseconds() -> None:
    assert time_axis(9_999.0, " since") == {"title_text": "ms since"}
    assert time_axis(22_000.0) == {
        "title_text": "seconds",
        "tickvals": [0, 5_000, 10_000, 15_000, 20_000],
        "ticktext": ["0", "5", "10", "15", "20"],
    }
    assert time_axis(1e8)["ticktext"] == ["0", "20000", "40000", "60000", "80000", "100000"]
