"""Figures of several runs: what they draw equals the numbers, and no run is told by colour alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import pytest

import lab
from engine.job.job import Job
from lab.analysis.comparison import lines
from lab.facade import Run
from lab.views import figures
from lab.views.figures.comparison.memory_compared import memory_compared_figure
from lab.views.figures.style.palette import PALETTES, Theme
from lab.views.figures.style.run_styles import run_colours, run_looks
from lab.wording import LOSS_LIMIT
from tests.lab.synthetic import Costs
from tests.lab.synthetic_runs import made_run
from tests.lab.test_figures import THEMES, named

PIPELINE = Job.from_options(pp=4, microbatches=8, layers=4)
REPLICAS = Job.from_options(dp=2)
EVERY = (figures.memory_compared, figures.losses, figures.idle_compared, figures.communication_compared)


def title(fig: go.Figure) -> str:
    return str(fig.layout.title.text)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [made_run(PIPELINE, Costs()), made_run(REPLICAS), made_run(Job())]


@pytest.mark.parametrize("theme", THEMES)
def test_six_runs_look_different_in_colour_dash_and_symbol(theme: Theme) -> None:
    looks = run_looks(6, theme)
    for what in ("colour", "dash", "symbol", "sign"):
        assert len({getattr(look, what) for look in looks}) == 6
    assert set(run_colours(6, theme)) < set(PALETTES[theme].every)
    assert run_colours(2, theme) == run_colours(6, theme)[:2]  # a run keeps its colour when others join
    with pytest.raises(ValueError, match="show at most 6"):
        run_looks(7, theme)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("draw", EVERY)
def test_every_run_is_named_with_a_sign_of_its_own(
    runs: list[Run], draw: Callable[..., go.Figure], theme: Theme
) -> None:
    text = str(draw(runs, ["A: one", "B: two", "C: three"], theme).to_plotly_json())
    signs = ("circle-open", "square-open", "diamond-open") if draw is figures.losses else ("●", "■", "◆")
    assert all(sign in text for sign in (*signs, *run_colours(3, theme)))


# -- memory


def test_a_bar_adds_up_to_the_peaks_of_the_fullest_rank(runs: list[Run]) -> None:
    fig = figures.memory_compared(runs, ["A", "B", "C"])
    bars = [trace for trace in fig.data if trace.type == "bar"]
    for i, run in enumerate(runs):
        row = max(run.summary["memory"]["per_rank"], key=lambda row: row["total_peak"])
        parts = sum(v for k, v in row.items() if k not in ("rank", "total_peak"))
        assert sum(bar.x[i] for bar in bars) * 1e3 == pytest.approx(parts)  # drawn in kB
        assert named(fig, "highest total at one time").x[i] * 1e3 == pytest.approx(row["total_peak"])


def test_the_memory_title_tells_who_peaks_lowest_and_by_how_much() -> None:
    def row(total: int) -> dict[str, int]:
        blank = dict.fromkeys(("params", "grads", "optimizer", "activations_peak", "gathered_peak", "buffers_peak"), 0)
        return blank | {"params": total, "total_peak": total}

    said = title(memory_compared_figure([row(4000), row(3000)], ["A: x", "B: y"]))
    assert said == "B peaks lowest: 3 kB on its fullest rank, 25 % less than A with 4 kB"
    assert title(memory_compared_figure([row(4000), row(4000)], ["A", "B"])) == "All peak at 4 kB on their fullest rank"


# -- losses


def test_equal_curves_are_drawn_one_inside_the_other() -> None:
    fig = figures.losses([made_run(REPLICAS) for _ in range(3)], ["A", "B", "C"])
    curves = [trace for trace in fig.data if trace.yaxis == "y" and trace.name != "one process"]
    assert [tuple(curve.y) for curve in curves] == [tuple(curves[0].y)] * 3
    for size in ([curve.line.width for curve in curves], [curve.marker.size for curve in curves]):
        assert size == sorted(set(size), reverse=True)
    assert title(fig) == "Every loss equals that of one process to the last bit"


def test_differences_from_one_process_are_drawn_against_the_band_of_parity() -> None:
    off = made_run(REPLICAS, losses=(5.0, 4.0, 3.0), reference=(5.0, 4.0, 3.0 / (1 + 3e-5)))
    fig = figures.losses([made_run(REPLICAS), off], ["A: x", "B: y"])
    (drawn,) = [trace for trace in fig.data if trace.yaxis == "y2" and trace.name == "B: y"]
    assert list(drawn.y) == pytest.approx([0, 0, 3e-5], abs=1e-12)
    (band,) = [shape for shape in fig.layout.shapes if shape.type == "rect"]
    assert (band.y0, band.y1) == (-LOSS_LIMIT, LOSS_LIMIT)
    assert title(fig) == "B is off one process by 3e-5; 1e-5 is allowed"
    assert fig.layout.yaxis2.range[1] > 3e-5


def test_without_a_reference_the_curves_stand_alone() -> None:
    nan = (float("nan"),) * 3
    fig = figures.losses([made_run(REPLICAS, reference=nan), made_run(REPLICAS, reference=nan)], ["A", "B"])
    assert all(trace.yaxis == "y" for trace in fig.data) and "one process" not in {trace.name for trace in fig.data}
    assert "none was compared with one process" in title(fig)


def test_a_loss_that_is_no_number_is_never_called_equal_or_lowest() -> None:
    nan, reference = float("nan"), (5.0, 4.0, 3.0)
    for losses in ((5.0, 4.0, nan), (5.0, 4.0, float("inf")), (nan,) * 3):
        broken = made_run(REPLICAS, losses=losses, reference=reference)
        fig = figures.losses([made_run(REPLICAS), broken], ["A: x", "B: y"])
        assert title(fig) == "A loss of B is no number where that of one process is"
        assert all(abs(edge) < 1 for edge in fig.layout.yaxis2.range)
    runs = [made_run(REPLICAS, losses=(5.0, 4.0, last), reference=(nan,) * 3) for last in (nan, 3.0)]
    assert title(figures.losses(runs, ["A", "B"])).startswith("B ends with the lowest loss, 3.0000;")


def test_simulations_have_no_losses_and_the_figure_says_so() -> None:
    fig = figures.losses([lab.simulate(cluster="toy-2x4", dp=2)] * 2, ["A", "B"])
    assert not fig.data and "nothing was trained" in fig.layout.annotations[0].text


# -- idle time and bytes


def test_the_shares_of_a_run_add_up_to_one_and_its_idle_ones_to_the_bubble(runs: list[Run]) -> None:
    fig = figures.idle_compared(runs, ["A", "B", "C"])
    for i, run in enumerate(runs):
        assert sum(trace.x[i] for trace in fig.data) == pytest.approx(1)
        idle = sum(trace.x[i] for trace in fig.data if trace.name.startswith("idle"))
        assert idle == pytest.approx(run.summary["bubble"]["measured"])
    assert title(fig).startswith("Share of time idle: C 0.0 %, A 27 %; largest difference: ")
    patterns = [trace.marker.pattern.shape for trace in fig.data if trace.name.startswith("idle")]
    assert all(patterns) and len(set(patterns)) == len(patterns)


def test_bytes_are_drawn_by_axis_and_run(runs: list[Run]) -> None:
    fig = figures.communication_compared(runs, ["A", "B", "C"])
    sent: list[dict[str, Any]] = [dict(zip(trace.y, trace.x, strict=True)) for trace in fig.data]
    assert sent[0]["data"] == sent[2]["data"] == sent[1]["pipeline"] == 0
    for i, axis in ((0, "pipeline"), (1, "data")):
        sums = {"data": ("dp", "all_reduce"), "pipeline": ("pp", "send_act")}
        rows = [row for row in runs[i].summary["communication"] if (row["axis"], row["op"]) == sums[axis]]
        assert sent[i][axis] == sum(row["logical_bytes"] for row in rows) > 0


def test_long_names_are_broken_into_lines(runs: list[Run]) -> None:
    fig = figures.idle_compared(runs, lines.names(runs))
    assert all(
        len(line) < 30 for label in fig.layout.yaxis.ticktext for line in label.split("</span>")[1].split("<br>")
    )
