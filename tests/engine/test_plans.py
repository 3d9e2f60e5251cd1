"""The planner's enumeration: exactly the plans that `rules.check` accepts, those without effect left out."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest

from engine.job import rules
from engine.job.errors import JobRefused
from engine.job.job import Job, Model, Plan, Training
from engine.job.schedules import SCHEDULES
from engine.model.buckets import buckets_of_pp_rank
from engine.planner.estimate.distinct_stages import bucket_sizes, rank_kinds
from engine.planner.plans import KNOBS, RECOMPUTES, Shape, Space, job_of, searched, shapes, variants

JOB = Job(model=Model(layers=4, hidden=24, heads=6, seq=16, vocab=256, tied=True), training=Training(batch=12))


def every_accepted(job: Job, ranks: int) -> set[Plan]:
    """By trying all combinations, those without effect aside, and other schedules than 1F1B without a pipeline."""
    found = set()
    for dp, tp, pp in product(range(1, ranks + 1), repeat=3):
        if dp * tp * pp != ranks:
            continue
        knobs = product(searched(pp), range(1, 6), range(4), range(1, 13), (False, True), RECOMPUTES)
        for schedule, chunks, zero, m, scatter, recompute in knobs:
            plan = Plan(
                dp=dp, tp=tp, pp=pp, schedule=schedule, chunks=chunks, zero=zero, microbatches=m,
                sequence_parallel=scatter, recompute=recompute,
            )  # fmt: skip
            one = dataclasses.replace(job, plan=plan)
            if rules.notes(one):
                continue
            try:
                rules.check(one)
            except JobRefused:
                continue
            found.add(plan)
    return found


def every_listed(space: Space, ranks: int) -> list[Plan]:
    return [
        job_of(space, shape, many, i).plan
        for shape in shapes(space, ranks)
        for many in [variants(space, shape)]
        for i in range(len(many))
    ]


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
def test_the_search_lists_exactly_what_the_rules_accept_and_each_once(ranks: int) -> None:
    listed = every_listed(Space(JOB), ranks)
    assert len(set(listed)) == len(listed)
    assert set(listed) == every_accepted(JOB, ranks)


@pytest.mark.parametrize("fixed", [{"tp": 2, "zero": 1}, {"microbatches": 6, "schedule": "interleaved"}, {"pp": 4}])
def test_fixed_knobs_leave_exactly_the_plans_that_have_them(fixed: dict[str, object]) -> None:
    listed = set(every_listed(Space.of(JOB, fixed), 4))
    wanted = {p for p in every_accepted(JOB, 4) if all(getattr(p, name) == value for name, value in fixed.items())}
    assert listed - {p for p in listed if p.dp == 1 and p.zero} == wanted  # a fixed ZeRO stage may be without effect


def test_every_schedule_of_the_engine_is_searched_where_there_is_a_pipeline() -> None:
    listed = every_listed(Space(JOB), 4)
    assert {plan.schedule for plan in listed} == set(SCHEDULES.names)
    assert {plan.schedule for plan in listed if plan.pp == 1} == {"1f1b"}


def test_knobs_are_options_of_a_plan() -> None:
    assert set(KNOBS) <= set(vars(Plan()))


@pytest.mark.parametrize("bucket_kb", [1, 20, 100_000])
@pytest.mark.parametrize(("pp", "chunks", "zero"), [(1, 1, 0), (2, 2, 1), (4, 1, 2), (2, 1, 3)])
def test_buckets_by_numbers_are_those_of_the_engine(bucket_kb: int, pp: int, chunks: int, zero: int) -> None:
    plan = Plan(dp=2, tp=2, pp=pp, chunks=chunks, zero=zero, bucket_kb=bucket_kb)
    job = dataclasses.replace(JOB, plan=plan)
    shape = Shape(2, 2, pp, "1f1b", chunks)
    for kind in rank_kinds(job, shape):
        for lane in kind.pp_ranks:
            has = bucket_sizes(job, shape, kind, zero)
            assert [b.padded for b in buckets_of_pp_rank(job, lane)] == has.padded.tolist()
            assert [b.shard for b in buckets_of_pp_rank(job, lane)] == has.shard.tolist()


def test_who_wishes_sequence_parallelism_is_offered_plans_without_a_tensor_group_too() -> None:
    """It has no effect there, so they are the same plans as without the wish."""
    wished, free = Space.of(JOB, {"sequence_parallel": True}), Space.of(JOB, {})
    shape = Shape(2, 1, 1, "1f1b", 1)
    assert len(variants(wished, shape)) == len(variants(free, shape)) > 0
    assert not any(variants(wished, shape).sequence)
