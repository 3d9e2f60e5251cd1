"""An action kind is one record: one from outside runs, is proved, foretold, printed, drawn; an unknown one is told."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.cluster.cluster import load_cluster
from engine.execution.runtime import HANDLERS
from engine.job.errors import Unknown
from engine.job.job import Job
from engine.job.mesh import mesh_of
from engine.model.buckets import buckets_of_pp_rank
from engine.prediction.critical_path import critical_path
from engine.prediction.peak_memory import predicted_memory
from engine.prediction.rehearsal.rehearse import rehearse
from engine.prediction.replay.replay import replay
from engine.program.checks.check import check_program
from engine.program.compile import PASSES, compile_job
from engine.program.kinds import KINDS, Kind
from engine.program.program import Action, Program
from engine.program.streams import STREAMS
from engine.recording.tables import Recorded, Recording
from lab import analysis
from lab.analysis.step.activity import activities
from lab.analysis.step.step_ops import step_ops
from lab.analysis.step.time_breakdown import step_shares
from lab.cli.terminal.timeline import text_timeline
from lab.facade import Run
from lab.views import figures
from lab.views.exports import export, hta
from lab.views.exports.perfetto import trace_events
from lab.views.timeline import timeline_data
from tests.lab.fake_run import FakeRun
from tests.seams.whole_way import pictures, plugged_in, printed, run_and_prove

STASHED: dict[str, Any] = {"layers": 4, "hidden": 32, "seq": 16, "microbatches": 4, "batch": 16, "steps": 2}


@pytest.fixture(scope="module")
def stash() -> Iterator[None]:
    with plugged_in("tests.seams.stash", KINDS, STREAMS, HANDLERS, PASSES):
        yield


@pytest.fixture(scope="module")
def run(stash: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("stash") / "runs"))
        yield run_and_prove(**STASHED, dp=2, pp=2, zero=1, bucket_kb=16)


def test_a_copy_to_another_memory_runs_with_parity_and_as_predicted(run: Run) -> None:
    mine = [row for row in run.recording.op_rows() if (row.rank, row.step, row.kind) == (0, 1, "stash")]
    buckets = buckets_of_pp_rank(run.job, 0)
    assert len(buckets) > 1 and {row.unit for row in mine} == {b.name for b in buckets}
    shard = {b.name: b.shard for b in buckets}
    assert all(row.cost.touched_bytes == 2 * 4 * shard[row.unit] for row in mine), "read once and written once, in fp32"
    assert {(row.stream, row.op, *row.peers, row.cost.wire_bytes) for row in mine} == {("host", "copy", 0, 0)}


def test_it_is_booked_while_it_lasts_and_the_prediction_says_so(run: Run) -> None:
    with_it = predicted_memory(run.job, run.program)[0]["buffers_peak"]
    assert with_it >= sum(4 * b.shard for b in buckets_of_pp_rank(run.job, 0)), "all of them, at the end of the step"
    assert run.summary["memory"]["per_rank"][0]["buffers_peak"] == with_it


def test_a_replay_times_it_by_the_memory_of_the_device_and_beside_computing(run: Run) -> None:
    there = run.replay("toy-2x4").recording
    device = load_cluster("toy-2x4").device_of(0, run.job.world_size)
    rows = [row for row in there.op_rows() if row.kind == "stash"]
    for row in rows:
        expected = row.cost.touched_bytes / (device.memory_bandwidth * device.memory_fraction)
        assert (row.end_ns - row.start_ns) / 1e9 >= expected * 0.99 - 2e-9
    assert critical_path(there), "and the longest way through the step is found with it"


def test_its_program_is_read_and_travels_to_other_processes(run: Run) -> None:
    assert Program.parse(run.program.text()) == run.program
    assert pickle.loads(pickle.dumps(run.program)) == run.program
    assert "stash head" in run.program.text()


def test_terminal_and_figures_show_it_on_a_lane_of_its_own(run: Run, tmp_path: Path) -> None:
    assert "host memory" in printed(run)
    drawn = pictures(run)
    assert all(figure.data for figure in drawn.values())
    told = [text for trace in drawn["timeline"].data if trace.customdata is not None for text in trace.customdata]
    assert sum("<b>stash " in str(text) for text in told) == 4 * len(buckets_of_pp_rank(run.job, 0))
    data = timeline_data(run.recording, run.job)
    assert "host memory" in data["axes"]
    assert any(text.startswith("stash ") for text in data["layers"][0]["texts"])
    assert "stash" in run.report(tmp_path / "report.html").read_text(encoding="utf-8")
    for format in ("perfetto", "hta"):
        export(run, format, tmp_path / format)


# -- what nobody knows


JOB = Job.from_options(layers=2, hidden=32, heads=4, seq=16, pp=2, microbatches=2, batch=4)
CLUSTER = load_cluster("toy-2x4")


def renamed(column: str, of: str, to: str) -> Recording:
    """A recorded step with one word that nobody knows."""
    whole = replay(rehearse(JOB), JOB, CLUSTER)
    words = [to if word == of else word for word in whole.ops[column].to_pylist()]
    at = whole.ops.schema.get_field_index(column)
    return Recorded(whole.ops.set_column(at, column, pa.array(words)), whole.memory, whole.metrics)


ROWS: dict[str, Callable[[Recording], Any]] = {
    "replay": lambda made: replay(made, JOB, CLUSTER),
    "critical path": critical_path,
    "step": lambda made: step_ops(made, 0),
    "bubble": lambda made: analysis.bubble(made, JOB, 0),
    "idle": lambda made: analysis.idle_by_cause(made, 0),
    "overlap": lambda made: analysis.overlap(made, 0),
    "communication": lambda made: analysis.communication(made, mesh_of(JOB), 0),
    "time breakdown": lambda made: step_shares(made, 0),
    "terminal": lambda made: text_timeline(made, mesh_of(JOB), 0),
    "moment": lambda made: activities(made, 0, 0),
    "perfetto": lambda made: list(trace_events(FakeRun(JOB, made, {}))),
    "hta": lambda made: hta.parts(FakeRun(JOB, made, {}), 0),
    "timeline figure": lambda made: figures.timeline_figure(made, JOB),
    "timeline canvas": lambda made: timeline_data(made, JOB),
}


@pytest.mark.parametrize("consumer", ROWS)
@pytest.mark.parametrize(
    ("column", "of", "to", "what"),
    [
        ("kind", "backward", "backwards", "kind of action called 'backwards': did you mean backward?"),
        ("stream", "pp_act", "pp_actt", "stream called 'pp_actt': did you mean pp_act?"),
        ("op", "message", "mail", "operation called 'mail'"),
    ],
)
def test_nobody_takes_an_unknown_row_for_another(consumer: str, column: str, of: str, to: str, what: str) -> None:
    with pytest.raises(Unknown, match=what):
        ROWS[consumer](renamed(column, of, to))


STRANGE = Kind(name="offload", words="offloading", acts_on="bucket")


def test_no_program_can_hold_a_kind_that_nobody_knows() -> None:
    with pytest.raises(Unknown, match="no kind of action called 'offload'"):
        Program(((Action(STRANGE, "head"),),))
    with pytest.raises(Unknown, match="line 2: there is no kind of action called 'offload'"):
        Program.parse("pipeline 0:\n  offload head")
    with pytest.raises(Unknown, match="'offload'"):
        pickle.loads(pickle.dumps(Action(STRANGE, "head")))


def test_a_kind_without_a_handler_or_with_a_colour_that_there_is_not_is_told() -> None:
    HANDLERS_BEFORE = HANDLERS.names
    odd = KINDS.add(Kind(name="odd", words="odd", acts_on="rank", letter="O", work="step", role="mauve", rows="alone"))
    try:
        program = Program(tuple((*lane[:-1], Action(odd), lane[-1]) for lane in compile_job(JOB).lanes))
        check_program(program, JOB)
        with pytest.raises(Unknown, match="no handler of an action kind called 'odd'"):
            rehearse(JOB, program)
        made = renamed("kind", "backward", "odd")
        for draw in ("timeline figure", "timeline canvas"):
            with pytest.raises(Unknown, match="no role of an action kind called 'mauve'"):
                ROWS[draw](made)
    finally:
        KINDS.remove("odd")
    assert HANDLERS.names == HANDLERS_BEFORE
