"""Which settings a slider may stop at, and what it says of the others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.job import rules
from engine.job.errors import JobRefused
from engine.job.job import Job
from lab.widgets.explorer import knobs

CUBE = Job.from_options(dp=2, tp=2, pp=2, cluster="toy-2x4")
SMALL = Job.from_options(cluster="toy-2x4")


def legal(name: str, job: Job) -> list[object]:
    return [stop.value for stop in knobs.stops(knobs.knobs()[name], job) if not stop.why]


def test_tensor_degrees_stop_at_the_divisors_of_the_heads() -> None:
    assert legal("tp", Job.from_options(heads=4, cluster="toy-2x4")) == [1, 2, 4]
    assert legal("tp", Job.from_options(heads=6, hidden=96, cluster="toy-2x4")) == [1, 2, 3, 6]


def test_micro_batches_stop_where_every_replica_gets_whole_ones() -> None:
    assert legal("microbatches", Job.from_options(dp=2, batch=24, cluster="toy-2x4")) == [1, 2, 3, 4, 6, 12]


def test_pipeline_degrees_end_at_the_number_of_layers() -> None:
    assert legal("pp", Job.from_options(layers=3, cluster="toy-2x4")) == [1, 2, 3]


def test_degrees_end_where_the_cluster_has_no_more_devices_and_the_sentence_says_so() -> None:
    stops = {stop.value: stop.why for stop in knobs.stops(knobs.knobs()["dp"], CUBE)}
    assert stops[2] == ""
    assert "8" in stops[4] and "toy-2x4" in stops[4]  # 4 × 2 × 2 ranks, 2 × 4 devices


def test_more_processes_than_an_explorer_starts_are_refused_in_words() -> None:
    job = Job.from_options(dp=4, pp=4, batch=64, cluster="a100-dgx")
    with pytest.raises(JobRefused, match=r"32 processes are more than the 16 an explorer starts: use smaller degrees"):
        knobs.turned(job, "tp", 2)


@pytest.mark.parametrize(("schedule", "chunks"), [("interleaved", 2), ("zb-v", 2), ("gpipe", 1), ("zb-h1", 1)])
def test_a_schedule_brings_its_number_of_chunks_and_the_learner_is_told(schedule: str, chunks: int) -> None:
    start = Job.from_options(pp=2, schedule="interleaved", chunks=2, cluster="toy-2x4")
    for before in (start, Job.from_options(pp=2, cluster="toy-2x4")):
        after = knobs.turned(before, "schedule", schedule)
        assert after.plan.chunks == chunks
        told = knobs.companions(before, after, "schedule")
        assert ("chunks" in told) == (before.plan.chunks != chunks)


def test_interleaving_without_a_pipeline_is_answered_with_what_it_needs() -> None:
    assert "needs a pipeline and pp=1: use pp=2 or more" in knobs.refusal(SMALL, "schedule", "interleaved")


def test_a_value_that_is_no_stop_is_shown_among_them() -> None:
    job = Job.from_options(batch=40, microbatches=20, cluster="toy-2x4")
    found = knobs.described(knobs.knobs()["microbatches"], job, 1)
    assert [stop["value"] for stop in found["stops"]][-2:] == [16, 20]
    assert found["value"] == 20


def test_unknown_knobs_are_refused_with_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="no knob called 'microbatch': did you mean microbatches"):
        knobs.chosen(("microbatch",))


def test_links_are_as_fast_as_their_stops_say() -> None:
    assert [knobs.link_text(speed) for speed in (0.0625, 0.5, 1.0, 16.0)] == ["÷16", "÷2", "×1", "×16"]
    with pytest.raises(JobRefused, match="link_speed=3 is not a stop: use one of ÷16"):
        knobs.link_speed(3)


@settings(deadline=None)
@given(st.data())
def test_whatever_is_turned_to_a_legal_stop_the_job_keeps_every_rule(data: st.DataObject) -> None:
    job = CUBE
    for _ in range(4):
        knob = data.draw(st.sampled_from([k for k in knobs.knobs().values() if k.name != "link_speed"]))
        stops = [stop for stop in knobs.stops(knob, job) if not stop.why]
        assert any(stop.value == job.options()[knob.name] for stop in stops), "where it stands is legal"
        job = knobs.turned(job, knob.name, data.draw(st.sampled_from(stops)).value)
        rules.check(job)
