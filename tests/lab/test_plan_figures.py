"""Figures of plans: schedules beside each other, the bubble's curve, and what ZeRO saves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.job.job import Job
from engine.program.dryrun import in_flight
from lab.views import figures
from lab.views.figures.memory.memory_by_zero import by_formula, memory_by_zero_figure, saved
from lab.views.figures.pipeline.bubble_curve import curve_points
from lab.views.figures.pipeline.schedules import ordered_schedules, schedules_figure
from tests.lab.fake_run import fake_run

PIPELINE = Job.from_options(pp=4, microbatches=8, layers=8, batch=16)
NAMES = ("naive", "gpipe", "1f1b", "interleaved", "zb-h1")


# -- schedules


def test_schedules_have_the_bubbles_of_the_literature() -> None:
    every, refused = ordered_schedules(PIPELINE, NAMES)
    p, m, v = 4, 8, 2
    expected = [
        (p - 1) / p,
        (p - 1) / (m + p - 1),
        (p - 1) / (m + p - 1),
        (p - 1) / (v * m + p - 1),
        (p - 1) / (3 * m + p - 1),
    ]
    assert [one.bubble for one in every] == pytest.approx(expected)
    assert not refused


def test_gpipe_holds_every_micro_batch_and_1f1b_at_most_one_a_stage_left() -> None:
    every, _ = ordered_schedules(PIPELINE, ("gpipe", "1f1b"))
    assert [one.peaks for one in every] == [(8, 8, 8, 8), (4, 3, 2, 1)]


def test_a_chunks_activations_count_their_share_of_the_rank() -> None:
    (one,), _ = ordered_schedules(PIPELINE, ("interleaved",))
    # (v−1)p + 2(p−1−r) + 1 chunks, half a micro-batch each
    assert one.peaks == tuple((4 + 2 * (3 - r) + 1) / 2 for r in range(4))
    assert in_flight(one.program)[0] == 11


def test_drawn_time_is_what_is_computed_and_what_is_idle() -> None:
    every, _ = ordered_schedules(PIPELINE, ("1f1b",))
    fig = schedules_figure(every)
    drawn = {trace.name: sum(trace.x) for trace in fig.data if trace.type == "bar"}
    # 8 micro-batches × 8 blocks, 1 forward and 2 backward; 3 of 11 idle
    assert drawn["forward"] == 64 and drawn["backward"] == 128
    assert drawn["idle"] / sum(drawn.values()) == pytest.approx(3 / 11)


def test_a_schedule_that_is_not_legal_is_left_out_with_the_reason() -> None:
    odd = replace(PIPELINE, plan=replace(PIPELINE.plan, microbatches=2))
    fig = figures.schedules(odd, names=("1f1b", "interleaved"))
    words = fig.layout.xaxis.title.text
    assert "interleaved 1F1B is left out: " in words and "microbatches=2" in words and "1F1B, " not in words


def test_only_schedules_that_need_chunks_get_them() -> None:
    assert [PIPELINE.under(name).plan.chunks for name in ("1f1b", "interleaved", "zb-v")] == [1, 2, 2]


def test_a_selected_rank_is_pointed_at_by_its_place_in_the_pipeline() -> None:
    job = Job.from_options(dp=2, pp=2)
    fig = figures.schedules(job, names=("gpipe", "1f1b"), selected=3)  # data 1, pipeline 1
    assert list(fig.layout.yaxis.ticktext).count("<b>▸ pipeline 1</b>") == 2
    assert len(fig.layout.shapes) == 2


# -- bubble against micro-batches


def test_the_curve_is_the_formula() -> None:
    assert curve_points(PIPELINE, 20) == [(m, pytest.approx(3 / (m + 3))) for m in range(1, 21)]
    chunked = PIPELINE.under("interleaved")
    assert curve_points(chunked, 12) == [(m, pytest.approx(3 / (2 * m + 3))) for m in (4, 8, 12)]


def test_runs_are_points_measured_and_replayed() -> None:
    run = fake_run(PIPELINE)
    fig = figures.bubble_curve([run])
    at = {t.name: (t.x[0], t.y[0], t.marker.symbol) for t in fig.data if t.mode == "markers"}
    found = run.summary["bubble"]
    assert at == {"measured": (8, found["measured"], "circle"), "counted in slots": (8, 0.2, "diamond")}
    assert any("newest" in a.text for a in fig.layout.annotations)


def test_schedules_differ_in_their_lines_too() -> None:
    runs = [fake_run(PIPELINE.under(name)) for name in ("1f1b", "naive", "zb-h1")]
    lines = [t.line.dash for t in figures.bubble_curve(runs).data if t.mode == "lines"]
    assert len(set(lines)) == 3


def test_without_runs_the_curve_of_a_job_stands_alone_and_without_either_it_says_so() -> None:
    title = figures.bubble_curve([], PIPELINE).layout.title.text
    assert title == "1F1B on 4 pipeline ranks: bubble 27 % with 8 micro-batches, 8.6 % with 32"
    assert "No run was made yet" in figures.bubble_curve([]).layout.annotations[0].text


# -- ZeRO


def test_zero_saves_what_the_paper_says_of_model_states() -> None:
    job = Job.from_options(dp=4)
    _, formula, _ = by_formula(job, None)
    # 16 bytes a parameter in fp32: 8 + 8/4, 4 + 12/4 and 16/4 are left (Rajbhandari et al. 2020, figure 1)
    assert [saved(formula[zero], formula[0]) for zero in (1, 2, 3)] == pytest.approx([0.375, 0.5625, 0.75], abs=1e-3)
    fig = memory_by_zero_figure(job, 0, formula, {}, "measured")
    assert fig.layout.annotations[1].text.startswith("states<br><b>−37.5 %</b><br>")


def test_each_stage_has_its_measured_bar_where_it_was_run() -> None:
    run = fake_run(Job.from_options(dp=2, zero=1))
    fig = figures.memory_by_zero([run])
    solid = next(t for t in fig.data if t.name == "parameters" and t.marker.pattern.shape is None)
    hatched = next(t for t in fig.data if t.name == "parameters" and t.marker.pattern.shape == "/")
    assert len(solid.x) == 1 and solid.x[0] == pytest.approx(0.79)
    assert len(hatched.x) == 4


def test_a_jobs_stages_are_rehearsed_and_equal_the_formula() -> None:
    fig = figures.memory_by_zero(Job.from_options(dp=2, layers=2))
    assert fig.layout.title.text.endswith("4 of 4 peaks rehearsed equal the formula")


def test_with_one_data_rank_zero_has_nothing_to_shard() -> None:
    assert figures.memory_by_zero([fake_run(Job())]).layout.title.text.startswith("With one data rank ZeRO has nobody")
