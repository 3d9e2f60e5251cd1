"""Presets and small versions of large plans: each must be a job that runs here."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.job import rules
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.job.schedules import SCHEDULES
from engine.prediction.published_models import PRESETS as MODELS
from lab.running.downscale import scaled_down, what_changed
from lab.running.experiments import PRESETS, jobs_of


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_made_of_legal_jobs_that_differ_in_its_knob_alone(name: str) -> None:
    preset = PRESETS[name]
    jobs = jobs_of(Job.from_options(**preset.base), preset.knob, preset.values)
    assert len(jobs) == max(1, len(preset.values))
    for job in jobs:
        rules.check(job)
        assert job.world_size <= 8
    differing = {key for key in jobs[0].options() if len({str(job.options()[key]) for job in jobs}) > 1}
    assert differing == ({preset.knob} if preset.knob else set())


def test_a_schedule_brings_its_chunks() -> None:
    base = Job.from_options(pp=2, layers=8)
    assert [job.plan.chunks for job in jobs_of(base, "schedule", ("gpipe", "interleaved", "zb-v"))] == [1, 2, 2]
    with pytest.raises(JobRefused, match="zero=7"):
        rules.check(jobs_of(base, "zero", (7,))[0])


@settings(max_examples=200, deadline=None)
@given(
    dp=st.integers(1, 512), tp=st.integers(1, 64), pp=st.integers(1, 128), zero=st.integers(0, 3),
    schedule=st.sampled_from(SCHEDULES.names), sequence=st.booleans(), most=st.sampled_from([4, 8, 16]),
)  # fmt: skip
def test_any_large_plan_has_a_small_version_that_is_legal(
    dp: int, tp: int, pp: int, zero: int, schedule: str, sequence: bool, most: int
) -> None:
    large = Job.from_options(
        MODELS["gpt3-175b"].job, dp=dp, tp=tp, pp=pp, zero=zero, schedule=schedule, sequence_parallel=sequence
    )
    small = scaled_down(large, most)
    rules.check(small)
    assert small.world_size <= most and small.training.precision == "fp32"
    assert small.plan.zero == zero and (small.plan.pp == 1 or small.plan.schedule == schedule)
    if most == 16:  # room for two of each
        for degree, kept in ((dp, small.plan.dp), (tp, small.plan.tp), (pp, small.plan.pp)):
            assert (degree > 1) == (kept > 1)


def test_what_became_smaller_is_said() -> None:
    large = Job.from_options(MODELS["gpt3-175b"].job, dp=16, tp=8, pp=8)
    small = scaled_down(large)
    words = what_changed(large, small)
    assert words.startswith("dp=16 tp=8 pp=8, 96 layers of 12288 → ") and f"{small.world_size} processes" in words
