"""The optimizer step is three things, so that what sums up, updates and gathers can lie beside one another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from engine.cluster.cluster import load_cluster
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.buckets import buckets_of_pp_rank
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.replay.replay import replay
from engine.program.checks.check import check_program
from engine.program.compile import compile_job
from engine.program.dryrun import dry_run
from engine.program.kinds import Kind
from engine.program.program import Action, Program
from engine.recording.tables import Recording
from lab import analysis
from lab.analysis.step.intervals import Spans, both, length, spans
from lab.analysis.step.step_ops import step_ops, typical_step
from lab.analysis.step.time_breakdown import step_shares
from lab.cli.terminal.timeline import text_timeline
from lab.views.figures.timeline.lanes import CATEGORIES, categories
from tests.engine.running import train
from tests.seams.whole_way import run_and_prove

BUCKETS: dict[str, Any] = {"layers": 4, "hidden": 32, "heads": 4, "seq": 16, "batch": 16, "bucket_kb": 16, "steps": 3}


def as_older_programs_have_it(program: Program) -> Program:
    """The norm and every update in one action, and only then the gathers."""

    def older(lane: Sequence[Action]) -> tuple[Action, ...]:
        norm = [a.kind for a in lane].index(Kind.NORM)
        after = (a for a in lane[norm:] if a.kind not in (Kind.NORM, Kind.UPDATE, Kind.END))
        return (*lane[:norm], Action(Kind.STEP), *after)

    return Program(tuple(map(older, program.lanes)))


def when(recording: Recording, rank: int, kind: Kind) -> Spans:
    rows = [row for row in recording.op_rows() if (row.rank, row.kind) == (rank, kind.name)]
    return spans(np.array([row.start_ns for row in rows]), np.array([row.end_ns for row in rows]))


def seconds(recording: Recording) -> float:
    return max(row.end_ns for row in recording.op_rows()) / 1e9


@pytest.mark.parametrize("zero", [1, 2])
@pytest.mark.parametrize("dp", [2, 4])
def test_gathers_run_under_the_updates_that_follow_them(dp: int, zero: int) -> None:
    job = Job.from_options(**BUCKETS, dp=dp, zero=zero)
    cluster, buckets = load_cluster("toy-2x4"), len(buckets_of_pp_rank(job, 0))
    now = replay(rehearse(job), job, cluster)
    before = replay(rehearse(job, as_older_programs_have_it(compile_job(job))), job, cluster)
    gathers, updates = when(now, 0, Kind.GATHER), when(now, 0, Kind.UPDATE)
    assert buckets > 3 and length(both(gathers, updates)) / length(gathers) > 0.2
    assert seconds(now) < seconds(before)
    # without overlap every update comes before every gather, as it always did
    job = Job.from_options(**BUCKETS, dp=dp, zero=zero, overlap=False)
    alone = replay(rehearse(job), job, cluster)
    assert length(both(when(alone, 0, Kind.GATHER), when(alone, 0, Kind.UPDATE))) == 0


def test_a_run_of_real_processes_gathers_under_updates_and_is_proved(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path / "runs"))
    run = run_and_prove(**BUCKETS, dp=2, zero=1)
    rows = [row for row in run.recording.op_rows() if (row.rank, row.step) == (0, 1)]
    buckets = [b.name for b in reversed(buckets_of_pp_rank(run.job, 0))]
    assert [row.name for row in rows if row.kind in ("norm", "update")] == ["norm", *(f"update {b}" for b in buckets)]
    issued = {row.unit: row.seq for row in rows if row.kind == "gather"}
    updated = {row.unit: row.seq for row in rows if row.kind == "update"}
    assert all(updated[a] < issued[a] < updated[b] for a, b in pairwise(buckets))
    assert "norm" in run.program.text() and "end" in run.program.text()
    assert analysis.overlap(run.replay("toy-2x4").recording, 1)["dp"] > 0


@pytest.mark.parametrize("plan", [{"dp": 2, "zero": 1}, {"dp": 2, "zero": 3}, {"pp": 2, "tied": True}, {"tp": 2}])
def test_losses_and_norms_are_to_the_bit_those_of_the_step_in_one(plan: dict[str, Any]) -> None:
    program = compile_job(Job.from_options(**BUCKETS, **plan))
    apart = train(parity=False, **BUCKETS, **plan)
    at_once = train(parity=True, program=as_older_programs_have_it(program), **BUCKETS, **plan)
    at_once.assert_parity()
    assert (apart.losses, apart.norms) == (at_once.losses, at_once.norms)


OLDER = as_older_programs_have_it(compile_job(Job.from_options(**BUCKETS, dp=2, pp=2, zero=1)))


def test_an_older_program_is_read_checked_walked_and_drawn_as_before() -> None:
    job = Job.from_options(**BUCKETS, dp=2, pp=2, zero=1)
    text = OLDER.text()
    assert "  step\n" in text and "norm" not in text
    program = Program.parse(text)
    check_program(program, job)
    assert dry_run(program).bubble() == dry_run(compile_job(job)).bubble()
    recording = replay(rehearse(job, program), job, load_cluster("toy-2x4"))
    assert typical_step(recording) == 0
    ops = step_ops(recording, 0)
    of_step = categories(ops)[ops.kind == "step"]
    assert set(of_step) == {"step"} and "step" in CATEGORIES
    assert step_shares(recording, 0)["step"] > 0
    assert ops.in_norm.any(), "where ranks meet for the norm nobody works"
    assert "S" in text_timeline(recording, mesh_of(job), 0, width=400).lines[0].text
