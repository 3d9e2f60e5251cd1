"""Whatever a learner asks for either runs and equals one process, or is refused in words before any process starts."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.job.rules import check
from engine.job.schedules import SCHEDULES
from tests.engine.running import train

JOBS = st.fixed_dictionaries(
    {
        "dp": st.sampled_from([1, 1, 2, 3]),
        "tp": st.sampled_from([1, 1, 2, 3, 4]),
        "pp": st.sampled_from([1, 1, 2, 3]),
        "zero": st.integers(0, 3),
        "schedule": st.sampled_from(SCHEDULES.names),
        "microbatches": st.sampled_from([1, 2, 3, 4]),
        "chunks": st.sampled_from([1, 1, 2]),
        "sequence_parallel": st.booleans(),
        "overlap": st.booleans(),
        "prefetch": st.integers(0, 3),
        "keep_gathered": st.booleans(),
        "bucket_kb": st.sampled_from([1, 20, 25_600]),
        "order": st.sampled_from(["tp-dp-pp", "pp-dp-tp", "dp-tp-pp"]),
        "layers": st.integers(1, 6),
        "hidden": st.sampled_from([12, 24, 30]),
        "heads": st.sampled_from([1, 2, 3, 4, 6]),
        "seq": st.sampled_from([5, 12]),
        "vocab": st.sampled_from([256, 259]),
        "tied": st.booleans(),
        "batch": st.sampled_from([6, 12, 24]),
        "steps": st.integers(1, 2),
        "clip": st.sampled_from([0.0, 0.1, 1.0]),
    }
)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(options=JOBS)
def test_two_hundred_random_jobs_run_with_parity_or_are_refused_in_words(options: dict[str, Any]) -> None:
    assume(options["dp"] * options["tp"] * options["pp"] <= 6)
    try:
        check(Job.from_options(**options))
    except JobRefused as refused:
        assert "\n" not in str(refused) and str(refused).endswith(".")
        assert any(f"{name}=" in str(refused) for name in options), "a refusal names a knob and its value"
        return
    train(**options).assert_parity()
