"""The report of a run beside its replay, and of a step that was only simulated."""

from __future__ import annotations

import re

import pytest
from plotly.offline import get_plotlyjs

from engine.job.job import Job
from engine.prediction.replay.replay import replay
from engine.recording.tables import Recording
from lab import analysis
from lab.analysis import gap
from lab.views import figures
from lab.views.figures.timeline.lanes import COMPUTE_HEIGHT
from lab.views.report import report_html
from lab.views.report.predicted import signed
from lab.wording import seconds
from tests.engine.clusters import cluster
from tests.lab.fake_run import FakeRun, fake_run, simulated_run
from tests.lab.test_report import Reader, page_of

CUBE = Job.from_options(dp=2, tp=2, pp=2, zero=1)


def replayed(run: FakeRun) -> Recording:
    return replay(run.recording, run.job, cluster(2, devices=8))


def test_beside_its_replay_a_run_shows_both_times_the_gap_and_the_paths() -> None:
    run = fake_run(CUBE)
    other = replayed(run)
    page = report_html(run, other, "small").replace(get_plotlyjs(), "")
    text = Reader(page).text
    found = gap(run.recording, other, 1)
    assert found.sentence() in text and "Predicted is a replay on cluster small" in text
    assert all(name in text for name in ("Where the difference goes", "The measured path, leg by leg"))
    assert "plot-comparison" in page and 'href="#predicted"' in page
    took, said = seconds(found.measured / 1e9), seconds(found.predicted / 1e9)
    assert re.search(rf"Step 1 took {took}; predicted were {said}, \d+ % less", text)
    assert re.search(rf"the step\s+{took}\s+{said}\s+{re.escape(signed(found.difference))}\s+100 %", text)


def test_a_run_without_a_replay_or_without_a_step_has_no_such_part() -> None:
    other = replayed(fake_run(CUBE))
    unfinished = report_html(fake_run(CUBE, steps=0, status="failed"), other, "small")
    for page in (page_of(fake_run(CUBE)), unfinished):
        assert 'id="predicted"' not in page and 'href="#predicted"' not in page


def test_differences_are_written_with_their_sign() -> None:
    assert [signed(ns) for ns in (9e6, -85_000, 0)] == ["+9 ms", "−85 µs", "none"]


def test_both_timelines_lie_on_one_axis_with_all_their_time() -> None:
    run = fake_run(CUBE)
    other = replayed(run)
    fig = figures.timeline(run, 1, replay=other)
    bars = next(trace for trace in fig.data if trace.name == "backward")
    above = sum(x for x, text in zip(bars.x, bars.customdata, strict=True) if text.startswith("measured"))
    below = sum(x for x, text in zip(bars.x, bars.customdata, strict=True) if text.startswith("predicted"))
    for total, recording in ((above, run.recording), (below, other)):
        rows = [row for row in recording.op_rows() if row.kind == "backward" and row.step == 1]
        assert total == pytest.approx(sum(row.end_ns - row.start_ns for row in rows) / 1e6)
    start, end = analysis.step_window(run.recording, 1)
    assert fig.layout.xaxis.range[1] == pytest.approx((end - start) / 1e6 * 1.01)


def test_the_critical_path_is_drawn_from_the_beginning_to_the_end_of_both_steps() -> None:
    run = fake_run(CUBE)
    other = replayed(run)
    line = next(trace for trace in figures.timeline(run, 1, replay=other).data if trace.name == "critical path")
    cut = line.x.index(None)
    found = gap(run.recording, other, 1)
    assert (line.x[0], line.x[cut - 1]) == (0, pytest.approx(found.measured / 1e6))
    assert line.x[cut + 1] == 0 and line.x[-2] == pytest.approx(found.predicted / 1e6)
    lanes = {round(y + COMPUTE_HEIGHT / 2 + 0.07, 6) for y in line.y[:cut]}
    assert lanes <= set(range(8))


# -- simulations


@pytest.fixture(scope="module")
def simulated() -> str:
    job = Job.from_options(dp=16, tp=4, pp=2, zero=1, microbatches=2, batch=64, steps=1, cluster="h100-dgx")
    return page_of(simulated_run(job))


def test_a_simulation_says_so_and_speaks_of_no_process_and_no_measurement(simulated: str) -> None:
    text = Reader(simulated).text
    assert "Simulated on h100-dgx" in text and "a step of 64 sequences simulated on 128 ranks" in text
    assert "lab simulate --dp 16" in text
    before = text[: text.rindex("Definitions")]
    for untrue in ("processes", "measured", "Not compared", "trained for", "None", "nan"):
        assert untrue not in before, untrue


def test_ranks_that_stand_for_others_say_for_how_many(simulated: str) -> None:
    text = Reader(simulated).text
    assert "rank 0 (and 63 like it), all categories at one time" in text
    assert "0 (and 63 like it)" in text and "64 (and 63 like it)" in text
    assert "(and 63 like it)" in simulated.split('id="spec-timeline"')[1].split("</script>")[0]


def test_a_simulation_has_no_empty_part(simulated: str) -> None:
    tags = Reader(simulated).tags
    plots = [a["id"] for _, a in tags if (a.get("id") or "").startswith("plot-")]
    assert plots == [f"plot-{n}" for n in ("timeline", "shares", "grid", "memory", "memory-over-time", "communication")]
    assert 'id="steps"' not in simulated and 'href="#steps"' not in simulated
    assert "Parity" not in Reader(simulated).text
