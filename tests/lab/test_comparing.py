"""Lines of a comparison: values against hand calculations and summaries, verdicts, noise, and runs of every kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import lab
from engine.job.job import Job
from lab import analysis
from lab.analysis.comparison import lines
from lab.analysis.comparison.lines import Line
from lab.analysis.comparison.run_metrics import spread, step_seconds
from lab.facade import Run
from lab.running.execute import run_job
from lab.store.folder import digest
from lab.wording import nbytes, percent, seconds
from tests.lab.conftest import PretendedLaunch
from tests.lab.synthetic import LIFELIKE, Costs, op, recording_of
from tests.lab.synthetic_runs import made_run

PIPELINE = Job.from_options(pp=4, microbatches=8, layers=4)
REPLICAS = Job.from_options(dp=2)


def by_key(runs: list[Run]) -> dict[str, Line]:
    return {line.key: line for line in lines.lines(runs)}


# -- one line


def test_less_is_better_where_lower_is_and_worse_where_higher_is() -> None:
    times = Line("t", (0.2, 0.1, 0.4, 0.2), seconds, better="lower")
    assert [times.verdict(i) for i in range(4)] == ["", "better", "worse", "same"]
    rates = Line("r", (200.0, 100.0, 400.0), lambda v: f"{v:.0f}", better="higher")
    assert [rates.verdict(i) for i in range(3)] == ["", "worse", "better"]
    assert Line("x", (1.0, 2.0), nbytes).verdict(1) == ""
    assert Line("x", (None, 2.0), nbytes, better="lower").verdict(1) == ""


def test_a_difference_is_signed_and_its_relative_size_is_of_the_first_run() -> None:
    line = Line("t", (0.2, 0.15), seconds)
    assert line.difference(1) == pytest.approx(-0.05) and line.relative(1) == pytest.approx(-0.25)
    assert line.difference(0) is None and Line("b", (0.0, 5.0), nbytes).relative(1) is None


def test_a_difference_no_larger_than_the_noise_of_both_runs_is_no_difference() -> None:
    noisy = Line("t", (0.100, 0.130, 0.160), seconds, better="lower", noise=(0.02, 0.02, 0.02))
    assert [noisy.within_noise(i) for i in (1, 2)] == [True, False]
    assert [noisy.verdict(i) for i in (1, 2)] == ["same", "worse"]
    assert [noisy.judged(i) for i in (0, 1, 2)] == ["", "noise", "worse"]
    assert noisy.change(1) == "+30 ms (+30 %)"  # what was measured is still told


def test_where_noise_is_not_known_there_is_no_verdict() -> None:
    line = Line("t", (0.1, 0.2), seconds, better="lower", noise=(None, 0.0))
    assert line.within_noise(1) is None and line.verdict(1) == line.judged(1) == ""


def test_noise_is_from_the_10th_to_the_90th_percentile_of_the_steps() -> None:
    assert spread([float(n) for n in range(11)]) == pytest.approx(8.0)  # 1 to 9
    assert spread([3.0, 3.0, 3.0]) == 0 and spread([3.0]) is None


# -- values


def test_a_list_of_runs_tells_the_time_of_the_step_that_a_comparison_tells() -> None:
    run = made_run(REPLICAS, seconds=(9.0, 0.3, 0.1, 0.2, 0.4))
    assert digest(run.summary)["step_seconds"] == step_seconds(run) == 0.2  # of 0.1, 0.2, 0.3 and 0.4 s
    assert digest(made_run(REPLICAS, seconds=(9.0,)).summary)["step_seconds"] == 9.0


def test_idle_time_by_cause_is_a_share_of_all_compute_streams() -> None:
    def row(rank: int, seq: int, kind: str, start: int, end: int) -> object:
        return op(rank=rank, seq=seq, kind=kind, name=kind, start_ns=start, end_ns=end)

    rows = [
        row(0, 0, "forward", 0, 100), row(0, 1, "backward", 110, 200), row(0, 2, "step", 200, 220),
        row(1, 0, "forward", 0, 50), row(1, 1, "wait", 50, 120), row(1, 2, "step", 120, 180),
    ]  # fmt: skip
    shares = analysis.step_shares(recording_of(rows), 0)
    # two ranks × 220 ns: a gap of 10, a wait of 70 whose sender nobody recorded, 40 after the last row
    idle = {cause: shares[cause] * 440 for cause in analysis.CAUSES}
    assert idle == pytest.approx({"host": 10, "transfer": 70, "done": 40, "dependency": 0, "straggler": 0})
    assert sum(shares.values()) == pytest.approx(1)


def test_the_idle_shares_of_a_pipeline_add_up_to_its_formula() -> None:
    found = by_key([made_run(PIPELINE, Costs()), made_run(PIPELINE, Costs())])
    idle = sum(line.values[0] or 0 for key, line in found.items() if key.startswith("idle_"))
    assert idle == pytest.approx(3 / 11)  # (p−1)/(m+p−1)
    assert found["bubble"].values[0] == pytest.approx(3 / 11)


def test_tokens_a_second_are_those_of_the_median_step() -> None:
    line = by_key([made_run(REPLICAS, seconds=(9.0, 0.1, 0.5, 0.2)), made_run(REPLICAS)])["tokens_per_second"]
    assert line.values[0] == pytest.approx(16 * 64 / 0.2)  # batch × seq ÷ seconds


def test_the_first_step_is_warm_up_and_no_noise() -> None:
    line = by_key([made_run(REPLICAS, seconds=(9.0, 0.1, 0.1)), made_run(REPLICAS, seconds=(9.0, 0.2, 0.1))])
    assert line["step_seconds"].noise == pytest.approx((0.0, 0.08))
    assert line["tokens_per_second"].noise == pytest.approx((0.0, 0.8 * (10240 - 5120)))


def test_memory_is_that_of_the_fullest_rank_and_so_are_its_categories() -> None:
    run = made_run(PIPELINE)
    full = max(run.summary["memory"]["per_rank"], key=lambda row: row["total_peak"])
    found = by_key([run, run])
    assert found["memory"].values[0] == full["total_peak"]
    assert found["memory_activations"].values[0] == full["activations_peak"]
    # 1F1B: the first rank holds a block and the embedding of all 4 micro-batches in flight, 4 kB each
    assert full["rank"] == 0 and full["activations_peak"] == 4 * 2 * 4_000


def test_losses_within_what_rounding_may_do_are_the_same() -> None:
    first = made_run(REPLICAS, losses=(5.5, 5.2, 5.0))
    close, far = made_run(REPLICAS, losses=(5.5, 5.2, 5.00004)), made_run(REPLICAS, losses=(5.5, 5.2, 4.9))
    line = by_key([first, close, far])["loss"]
    assert [line.verdict(i) for i in (1, 2)] == ["same", "better"]


def test_losses_of_different_steps_are_not_judged() -> None:
    line = by_key([made_run(REPLICAS), made_run(REPLICAS, seconds=(0.1,) * 5)])["loss"]
    assert line.better is None and line.verdict(1) == ""


def test_the_table_is_json_with_differences_as_numbers() -> None:
    runs = [made_run(REPLICAS, seconds=(0.2, 0.1, 0.1)), made_run(REPLICAS, seconds=(0.2, 0.25, 0.25))]
    rows = json.loads(json.dumps(lines.table(runs), allow_nan=False))
    (row,) = [row for row in rows if row["key"] == "step_seconds"]
    assert (row["name"], row["unit"], row["better"], row["values"]) == ("step time", "s", "lower", [0.1, 0.25])
    none, delta = row["deltas"]
    assert none is None and delta["absolute"] == pytest.approx(0.15) and delta["relative"] == pytest.approx(1.5)
    assert delta["verdict"] == "worse" and delta["within_noise"] is False


def test_one_timed_step_makes_no_verdict_on_times_but_one_on_bytes() -> None:
    runs = [made_run(REPLICAS, seconds=(0.2,)), made_run(Job(), seconds=(0.4,))]
    found = by_key(runs)
    assert found["step_seconds"].verdict(1) == found["bubble"].verdict(1) == ""
    assert found["bytes_dp"].verdict(1) == "better"


def test_one_timed_step_makes_no_verdict_on_hidden_communication() -> None:
    slow = replace(LIFELIKE, collective=10 * LIFELIKE.collective)
    line = by_key([made_run(REPLICAS, seconds=(0.2,)), made_run(REPLICAS, slow, seconds=(0.2,))])["overlap_dp"]
    assert line.difference(1) and line.noise == (None, None) and line.verdict(1) == ""


def test_what_a_rank_receives_is_not_among_what_it_sends() -> None:
    job = PIPELINE.options() | {"cluster": "toy-2x4"}
    line = by_key([lab.simulate(**job), lab.simulate(**job)])["bytes_pp"]
    # the first stage sends each activation of the batch once, [seq, batch, hidden] in fp32, and gets as many gradients
    assert line.values[0] == 64 * 16 * 64 * 4


# -- runs of every kind


def test_runs_of_other_sizes_and_models_are_compared() -> None:
    runs = [made_run(REPLICAS), made_run(Job.from_options(dp=2, tp=2, pp=2, layers=8))]
    assert lines.settings(runs) == {"layers": (4, 8), "tp": (1, 2), "pp": (1, 2)}
    found = by_key(runs)
    assert found["bytes_pp"].values[0] == 0 and (found["bytes_pp"].values[1] or 0) > 0
    assert lines.names(runs)[1] == "B: 2 data × 2 tensor × 2 pipeline, layers=8"


def test_replays_have_no_noise_so_every_difference_counts() -> None:
    runs = [lab.simulate(cluster="toy-2x4", dp=dp) for dp in (2, 1)]
    line = by_key([runs[0], *(run.replay("toy-2x4") for run in runs)])["step_seconds"]
    assert line.values == tuple(run.summary["step_seconds"] for run in (runs[0], *runs))
    assert line.noise == (0.0, 0.0, 0.0)
    assert [line.verdict(i) for i in (1, 2)] == ["same", "worse"]  # one rank does the work of two


def test_a_run_that_goes_on_is_compared_by_the_steps_it_has(pretended: PretendedLaunch) -> None:
    whole, seen = run_job(REPLICAS), []

    def look(folder: Path, step: int) -> None:
        if step == 2:
            going = lab.load(folder.name)
            seen.append((going.status, len(going.steps), by_key([whole, going])["loss"].values[1]))

    pretended.before_step = look
    run_job(REPLICAS)
    assert seen == [("running", 2, 5.25)]


def test_a_program_written_by_hand_is_something_set_differently(pretended: PretendedLaunch) -> None:
    job = Job.from_options(pp=2, microbatches=2)
    plain = lab.run(job=job)
    mine = lab.run(job=job, schedule="F0 B0 F1 B1\nF0 B0 F1 B1")
    assert lines.settings([plain, mine]) == {"program": ("compiled", "by hand")}


# -- a real pair


def test_lines_of_real_runs_are_the_numbers_of_their_summaries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))
    runs = [lab.run(dp=2, zero=zero, microbatches=1) for zero in (1, 3)]
    found = by_key(runs)
    for i, run in enumerate(runs):
        fullest = max(run.summary["memory"]["per_rank"], key=lambda row: row["total_peak"])
        assert found["memory"].values[i] == fullest["total_peak"]
        assert found["memory_params"].values[i] == fullest["params"]
        assert found["bytes_dp"].values[i] == sum(
            row["logical_bytes"] for row in run.summary["communication"] if row["axis"] == "dp"
        )
        assert found["overlap_dp"].values[i] == run.summary["overlap"]["dp"]
        assert found["bubble"].values[i] == run.summary["bubble"]["measured"]
        idle = sum(line.values[i] or 0 for key, line in found.items() if key.startswith("idle_"))
        assert idle == pytest.approx(run.summary["bubble"]["measured"])
        assert found["step_seconds"].values[i] == min(row["seconds"] for row in run.steps[1:])  # of two the shorter
    # parameters once more, in the backward (Rajbhandari et al. 2020, section 7)
    assert found["bytes_dp"].relative(1) == pytest.approx(0.5, abs=0.01)
    assert found["memory_params"].relative(1) == pytest.approx(-0.5, abs=0.01)
    assert found["loss"].verdict(1) == "same" and percent(found["loss"].relative(1) or 0) == "0.0 %"


@pytest.mark.parametrize(
    ("fraction", "said"), [(0.0, "0.0 %"), (4e-6, "< 0.1 %"), (0.00049, "< 0.1 %"), (0.0123, "1.2 %")]
)
def test_a_small_share_is_not_told_as_none(fraction: float, said: str) -> None:
    assert percent(fraction) == said
