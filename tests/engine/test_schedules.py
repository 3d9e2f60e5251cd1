"""The executed program against the textbooks: bubbles and in-flight activations, exactly."""

from fractions import Fraction
from typing import Any

import pytest
import torch

from engine.job.job import Job
from engine.job.rules import check
from engine.prediction.formulas import bubble_formula, in_flight_formula
from engine.program.checks.check import check_program
from engine.program.compile import compile_job
from engine.program.dryrun import dry_run, in_flight
from engine.program.kinds import Kind
from engine.program.program import Lanes
from engine.program.schedules.zero_bubble import zb_h1, zb_v

GRID = [
    (schedule, p, m, v)
    for p in (1, 2, 3, 4, 6, 8)
    for m in (1, 2, 3, 4, 7, 8, 16, 24)
    for schedule, chunks in (("naive", (1,)), ("gpipe", (1,)), ("1f1b", (1,)), ("interleaved", (2, 3, 4)))
    for v in chunks
    if schedule != "interleaved" or (p > 1 and m % p == 0)
]


def job_of(schedule: str, p: int, m: int, v: int) -> Job:
    """Equal stages of two blocks."""
    stages = p * v
    return Job.from_options(
        pp=p, microbatches=m, schedule=schedule, chunks=v, layers=2 * stages, batch=m, partition=(2,) * stages
    )


@pytest.mark.parametrize(("schedule", "p", "m", "v"), GRID)
def test_the_bubble_of_the_executed_program_is_the_published_formula(schedule: str, p: int, m: int, v: int) -> None:
    job = job_of(schedule, p, m, v)
    program = compile_job(job)
    check_program(program, job)
    published = {
        "naive": Fraction(p - 1, p),
        "gpipe": Fraction(p - 1, m + p - 1),
        "1f1b": Fraction(p - 1, m + p - 1),
        "interleaved": Fraction(p - 1, v * m + p - 1),
    }
    assert dry_run(program).bubble() == published[schedule]


@pytest.mark.parametrize(("schedule", "p", "m", "v"), GRID)
def test_in_flight_activations_are_the_known_counts(schedule: str, p: int, m: int, v: int) -> None:
    known = {
        "naive": [1] * p,
        "gpipe": [m] * p,
        "1f1b": [min(m, p - r) for r in range(p)],
        "interleaved": [min(v * m, (v - 1) * p + 2 * (p - 1 - r) + 1) for r in range(p)],
    }
    assert list(in_flight(compile_job(job_of(schedule, p, m, v)))) == known[schedule]


SPLIT = [
    (schedule, p, m, chunks)
    for p in range(2, 9)
    for m in range(1, 25)
    for schedule, chunks in (("zb-h1", 1), ("zb-h2", 1), ("zb-v", 2))
]


@pytest.mark.parametrize("p", range(2, 9))
def test_zero_bubble_schedules_have_the_papers_bubbles_and_memory(p: int) -> None:
    for schedule, _, m, v in (case for case in SPLIT if case[1] == p):
        job = job_of(schedule, p, m, v)
        program = compile_job(job)
        walk, known = dry_run(program), bubble_formula(job)
        assert not walk.stuck and (known is None or walk.bubble() == known), (schedule, p, m)
        assert known is not None or m < 2 * p - 1
        if schedule == "zb-h1":
            assert list(in_flight(program, until="input")) == [min(m, p - r) for r in range(p)]
            assert (known is None) == (m < p)
        elif m >= 2 * p - 1:
            assert walk.span_bubble() == 0
        assert list(in_flight(program)) == [in_flight_formula(job, r) for r in range(p)]


@pytest.mark.parametrize(("schedule", "p", "m", "v"), [c for c in SPLIT if c[1:3] in ((2, 1), (3, 2), (4, 8), (5, 3))])
def test_zero_bubble_programs_pass_their_checks(schedule: str, p: int, m: int, v: int) -> None:
    job = job_of(schedule, p, m, v)
    check(job)
    check_program(compile_job(job), job)


def test_three_stages_four_microbatches_slot_by_slot() -> None:
    # Drawn by hand: F takes one slot, B two.
    spans = dry_run(compile_job(job_of("1f1b", 3, 4, 1))).spans
    stage_work = {z: [] for z in range(3)}  # type: dict[int, list[str]]
    for s in spans:
        if s.action.kind in (Kind.FORWARD, Kind.BACKWARD) and s.action.unit == f"block{2 * s.pp_rank}":
            stage_work[s.pp_rank].append(f"{s.action.kind.name[0].upper()}{s.action.microbatch}")
    assert " ".join(stage_work[0]) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert " ".join(stage_work[1]) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert " ".join(stage_work[2]) == "F0 B0 F1 B1 F2 B2 F3 B3"


def torch_schedule(name: str, p: int, m: int, stages: list[int], rank: int = 0) -> Any:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")

    class Stage:
        """What the schedule's constructor looks at."""

        def __init__(self, index: int) -> None:
            self.stage_index, self.num_stages, self.group_size, self.group_rank = index, p * len(stages), p, rank
            self.is_first = self.is_last = False
            self.group, self.has_backward, self.submod = None, True, torch.nn.Module()
            self.stage_index_to_group_rank = {i: i % p for i in range(p * len(stages))}

    return getattr(schedules, name)([Stage(s) for s in stages], m, loss_fn=lambda a, b: a)


@pytest.mark.parametrize("p", [2, 3, 4, 8])
@pytest.mark.parametrize("m", [1, 2, 4, 5, 8, 16])
def test_zero_bubble_schedules_agree_with_torch_pipelining_action_for_action(p: int, m: int) -> None:
    def theirs(name: str, rank: int, stages: list[int]) -> list[tuple[int, str, int]]:
        order = torch_schedule(name, p, m, stages, rank).pipeline_order[rank]
        return [(a.stage_index, a.computation_type.name, a.microbatch_index) for a in order if a is not None]

    def ours(lanes: Lanes, rank: int) -> list[tuple[int | None, str, int | None]]:
        return [(a.stage, a.kind.name.upper(), a.microbatch) for a in lanes[rank]]

    for r in range(p):
        assert ours(zb_v(p, m, 2), r) == theirs("ScheduleZBVZeroBubble", r, [r, 2 * p - 1 - r])
        if m >= p and m % (m // p) == 0:
            assert ours(zb_h1(p, m, 1), r) == theirs("ScheduleInterleavedZeroBubble", r, [r])


def test_schedules_agree_with_torch_pipelining_on_the_order_of_each_rank() -> None:
    ours = compile_job(job_of("interleaved", 4, 8, 2)).lanes
    schedule = torch_schedule("ScheduleInterleaved1F1B", 4, 8, [0, 4])
    for z in range(4):
        mine = [
            (a.stage, a.kind.name[0].upper(), a.microbatch)
            for a in ours[z]
            if a.kind in (Kind.FORWARD, Kind.BACKWARD) and a.unit == f"block{2 * (a.stage or 0)}"
        ]
        torchs = [
            (
                a.stage_index,
                a.computation_type.name[0] if "FORWARD" in a.computation_type.name else "B",
                a.microbatch_index,
            )
            for a in schedule.pipeline_order[z]
            if a is not None
        ]
        assert mine == torchs
