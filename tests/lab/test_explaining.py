"""Sentences of a comparison: every reason is the largest number, noise is called noise, the same is called the same."""

from __future__ import annotations

from engine.job.job import Job
from engine.program.kinds import Kind
from engine.recording.columns import table_of
from engine.recording.tables import MemoryRow, Recorded, Recording
from lab.analysis.comparison.text import explain
from lab.facade import Run
from tests.lab.synthetic import Costs, lifelike, synthetic
from tests.lab.synthetic_runs import made_run

REPLICAS = Job.from_options(dp=2)
ZERO = Job.from_options(dp=2, zero=1)


def said(*runs: Run) -> str:
    (sentence,) = explain(runs)
    return sentence


def slow(kind: Kind, times: int) -> Costs:
    """Costs of which one kind of computation takes longer."""
    return Costs(lambda action: lifelike(action) * (times if action.kind is kind else 1), unit=100_000)


def holding(job: Job, **held: int) -> Recording:
    """A recording in which rank 0 holds these bytes, and the others none."""
    found = synthetic(job)
    rows = [MemoryRow(0, 0, 5_000_000_000, category, size) for category, size in held.items()]
    return Recorded(found.ops, table_of("memory", rows), found.metrics)


def test_runs_of_the_same_job_are_said_to_be_that() -> None:
    sentence = said(made_run(REPLICAS), made_run(REPLICAS))
    assert sentence.startswith("B is of the same job as A, and keeps peak memory and bytes sent as they are;")
    assert "the step takes as long; the loss of step 2 is the same to 1e-5." in sentence


def test_a_difference_in_memory_names_the_categories_that_make_most_of_it() -> None:
    before = made_run(REPLICAS, recording=holding(REPLICAS, params=400, grads=100, optimizer=500, buffers=10))
    after = made_run(ZERO, recording=holding(ZERO, params=400, grads=50, optimizer=100, gathered=150))
    # 1,010 to 700 bytes: −400 and −50 and −10 of states and buffers, +150 gathered
    assert (
        "B with zero=0 → 1 cuts peak memory of the fullest rank by 31 % (310 B, most of it optimizer state, while"
        " gathered parameters grew by 150 B)"
    ) in said(before, after)


def test_a_slower_step_is_blamed_on_the_part_that_grew_most() -> None:
    runs = [made_run(REPLICAS, slow(Kind.FORWARD, n), seconds=(0.1 * n,) * 3) for n in (1, 5)]
    assert "the step takes 5× as long (400 ms), most of it forward," in said(*runs)
    assert "takes 80 % less time (400 ms), most of it forward," in said(*reversed(runs))


def test_waiting_is_told_with_what_was_waited_for() -> None:
    pipeline = Job.from_options(pp=4, microbatches=1)

    def last_stage(times: int) -> Costs:
        return Costs(lambda action: lifelike(action) * (times if action.stage == 3 else 1), unit=100_000)

    runs = [made_run(pipeline, last_stage(n), seconds=(0.1 * n,) * 3) for n in (1, 20)]
    # while the last of four ranks computes for longer, three wait for its gradients
    assert "most of it waiting for another rank to compute (dependency: messages of gradients)," in said(*runs)


def test_a_difference_smaller_than_the_steps_own_is_called_noise() -> None:
    steady, restless = made_run(REPLICAS, seconds=(0.2, 0.10, 0.10)), made_run(REPLICAS, seconds=(0.2, 0.11, 0.21))
    # 10th to 90th percentile of 0.11 and 0.21 s
    assert "takes 10 % longer (10 ms), within noise: the steps of one run differ by 80 ms" in said(steady, restless)


def test_of_one_timed_step_nobody_can_tell() -> None:
    runs = made_run(REPLICAS, seconds=(0.1,)), made_run(REPLICAS, seconds=(0.2,))
    assert "but of one timed step nobody can tell whether that is noise" in said(*runs)


def test_bytes_are_told_by_axis() -> None:
    grid = Job.from_options(dp=2, pp=2)
    assert "on the pipeline axis (nothing before)" in said(made_run(REPLICAS), made_run(grid))
    assert "sends nothing on the pipeline axis (" in said(made_run(grid), made_run(REPLICAS))


def test_a_replay_beside_its_run_is_the_same_job_and_not_a_setting() -> None:
    run = made_run(REPLICAS)
    sentence = said(run, run.replay("toy-2x4"))
    assert sentence.startswith("B is of the same job as A, simulated on toy-2x4 instead of measured, and ")
    assert "loss" not in sentence and "cluster=" not in sentence


def test_losses_that_differ_are_told() -> None:
    runs = made_run(REPLICAS), made_run(Job.from_options(dp=2, lr=0.01), losses=(5.5, 5.0, 4.41))
    assert "the loss of step 2 is 10 % lower." in said(*runs)  # 4.9 to 4.41


def test_there_is_a_sentence_for_each_run_after_the_first() -> None:
    runs = [made_run(REPLICAS), made_run(ZERO), made_run(Job())]
    assert [sentence[0] for sentence in explain(runs)] == ["B", "C"]


def test_many_settings_are_counted_after_the_third() -> None:
    other = Job.from_options(dp=4, tp=2, layers=8, zero=2, lr=0.5)
    sentence = said(made_run(REPLICAS), made_run(other))
    assert sentence.startswith("B with layers=4 → 8, dp=2 → 4, tp=1 → 2 and 2 more settings ")
