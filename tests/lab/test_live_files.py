"""Live files as a reader may meet them: growing, cut short, damaged, replaced, far ahead of it, or not there."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from engine.job.job import Job
from engine.recording.live_files import (  # fmt: skip
    append_live,
    append_metric,
    live_path,
    live_reference_path,
    metric_line,
    status_path,
)
from engine.recording.running_totals import NOTHING, after, read_totals
from engine.recording.tables import CATEGORIES, MemoryRow, MetricRow, Op, OpCost  # fmt: skip
from lab import analysis
from lab.live import LiveRun, Snapshot, files
from lab.live.files import MetricsFile
from lab.store.store import Store
from tests.lab.synthetic import LIFELIKE, synthetic

JOB = Job.from_options(dp=2, tp=2, steps=9)
STEPS = 5


def metric(step: int) -> MetricRow:
    return MetricRow(step, 5.0 - step, 1.0, 0.5, 1000.0, math.nan)


class Writer:
    """Writes what the ranks of a run would, a step at a time."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root)
        self.info = self.store.create(JOB, ())
        self.folder = self.store.folder(self.info.id)
        made = synthetic(JOB, LIFELIKE, STEPS)
        self.ops, self.memory = list(made.op_rows()), [MemoryRow(**row) for row in made.memory.to_pylist()]
        self._so_far = dict.fromkeys(range(JOB.world_size), NOTHING)

    def step(self, number: int, ranks: range = range(JOB.world_size)) -> None:
        for rank in ranks:
            ops = [row for row in self.ops if (row.rank, row.step) == (rank, number)]
            memory = [row for row in self.memory if row.rank == rank and max(row.step, 0) == number]
            self._so_far[rank] = after(self._so_far[rank], ops, memory)
            append_live(live_path(self.folder, rank), ops, memory, self._so_far[rank])
        append_metric(self.folder, metric(number))

    def look(self, live: LiveRun | None = None) -> Snapshot:
        with self.store.executing(self.info.id):
            return (live or LiveRun(self.store, self.info.id)).refresh()


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def test_a_step_counts_once_all_ranks_have_written_it(writer: Writer) -> None:
    live = LiveRun(writer.store, writer.info.id)
    writer.step(0)
    first = writer.look(live)
    assert (first.latest_step, len(first.steps), first.eta_seconds) == (0, 1, 8 * 0.5)
    writer.step(1, range(3))
    again = writer.look(live)
    assert again.latest_step == 0 and again.recording is first.recording
    writer.step(1, range(3, 4))
    assert writer.look(live).latest_step == 1


def test_the_pace_leaves_the_first_step_out(writer: Writer) -> None:
    for step in range(3):
        writer.step(step)
    ends = [max(op.end_ns for op in writer.ops if (op.step, op.rank) == (step, 0)) for step in range(3)]
    assert writer.look().eta_seconds == pytest.approx(6 * (ends[2] - ends[0]) / 2 / 1e9)


def test_totals_are_those_counted_by_hand() -> None:
    def op(end: int, axis: str, nbytes: int) -> Op:
        stream = axis or "compute"
        spent = OpCost(logical_bytes=nbytes)
        return Op(rank=1, seq=0, stream=stream, kind="", name="", group=axis, end_ns=end, cost=spent)

    def held(time: int, category: str, nbytes: int) -> MemoryRow:
        return MemoryRow(0, 1, time, category, nbytes)

    ops = [op(5, "dp", 100), op(9, "", 0), op(7, "pp", 10), op(8, "dp", 1)]
    # 70 move from gathered to buffers in one instant, so that they count once
    memory = [held(1, "params", 40), held(2, "gathered", 70), held(3, "gathered", 0), held(3, "buffers", 70)]
    first = after(NOTHING, ops, memory)
    assert (first.step, first.moved, first.first_end_ns, first.end_ns) == (0, {"dp": 101, "pp": 10}, 9, 9)
    assert first.before == dict.fromkeys(CATEGORIES, 0)
    assert first.held == dict.fromkeys(CATEGORIES, 0) | {"params": 40, "buffers": 70}
    assert first.peak == first.held | {"gathered": 70} and first.peak_total == 110
    second = after(first, [replace(op(20, "tp", 5), step=1)], [held(11, "buffers", 0)])
    assert (second.step, second.moved) == (1, {"dp": 101, "pp": 10, "tp": 5})
    assert (second.before, second.held["buffers"], second.peak_total) == (first.held, 0, 110)
    assert (second.first_end_ns, second.end_ns) == (9, 20)
    line = json.dumps({"so_far": second, "ops": [], "memory": []}, separators=(",", ":"))
    assert read_totals(line.encode()) == second and read_totals(line.encode()[:-10]) == second


@pytest.mark.parametrize("line", [b"", b'{"so_far":', b'{"so_far":[1]}', b'{"so_far":7,', b'{"ops":[],"memory":[]}'])
def test_a_line_without_totals_is_told(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_totals(line)


def test_the_memory_of_a_step_begins_with_what_was_held_before(writer: Writer) -> None:
    for step in range(2):
        writer.step(step)
    snapshot = writer.look()
    assert snapshot.recording is not None
    for rank in range(JOB.world_size):
        _, held = analysis.memory_over_time(snapshot.recording, rank)
        assert held[CATEGORIES.index("params"), 0] == snapshot.memory_now[rank]["params"] > 0


@pytest.mark.parametrize("cut", [1, 40, 3000])
def test_of_a_line_cut_short_the_one_before_counts(writer: Writer, cut: int) -> None:
    for step in range(3):
        writer.step(step)
    path = live_path(writer.folder, 1)
    path.write_bytes(path.read_bytes()[:-cut])
    snapshot = writer.look()
    assert (snapshot.latest_step, snapshot.problem) == (1, "") and snapshot.recording is not None
    assert analysis.step_ops(snapshot.recording, 1).ranks == [0, 1, 2, 3]


def test_lines_longer_than_a_block_are_read_whole(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in range(2):
        writer.step(step)
    plain = writer.look()
    for block in (1, 2, 3, 1000):
        monkeypatch.setattr(files, "_BLOCK", block)
        found = writer.look()
        assert found.latest_step == 1 and found.recording is not None and plain.recording is not None
        assert found.recording.ops.equals(plain.recording.ops)


def test_a_file_that_was_cut_back_or_filled_with_noise_leaves_what_was_known(writer: Writer) -> None:
    live = LiveRun(writer.store, writer.info.id)
    for step in range(3):
        writer.step(step)
    known = writer.look(live)
    for content in (b"", b"\n\n", b"noise\n", bytes(5000), b'{"so_far":[3,4,5],"ops":[]}\n'):
        live_path(writer.folder, 2).write_bytes(content)
        now = writer.look(live)
        assert (now.latest_step, now.recording, now.problem) == (2, known.recording, "")
    assert writer.look().latest_step is None, "who comes now sees no whole step"
    live_path(writer.folder, 2).unlink()
    assert writer.look(live).recording is known.recording


def test_noise_in_the_other_files_of_a_run_is_left_out(writer: Writer) -> None:
    writer.step(0)
    status_path(writer.folder).write_bytes(b'{"version": 1, "members": ["rank 0"]}\n' + b"\xff" * 300)
    live_reference_path(writer.folder).write_text('{"losses": ["a"]}')
    snapshot = writer.look()
    assert (snapshot.problem, snapshot.reference_losses, snapshot.latest_step) == ("", (), 0)
    assert {rank.phase for rank in snapshot.ranks} == {"unknown"} and len(snapshot.ranks) == JOB.world_size
    live_reference_path(writer.folder).write_text('{"losses": [5.0, 4.5], "grad_norms": [1, 1]}')
    assert writer.look().reference_losses == (5.0, 4.5)


def test_metrics_come_once_each_and_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    with pytest.raises(OSError):
        metrics.read()
    lines = "".join(json.dumps(metric(step)) + "\n" for step in range(6))
    seen = []
    for end in range(0, len(lines) + 1, 7):
        path.write_text(lines[:end])
        metrics.read()
        seen.append(len(metrics.rows))
    path.write_text(lines)
    metrics.read()
    assert seen == sorted(seen) and set(seen) >= set(range(1, 6))
    assert [row.step for row in metrics.rows] == list(range(6))


def test_metrics_written_anew_replace_those_known_and_bad_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = MetricsFile(path)
    path.write_text("".join(json.dumps(metric(step)) + "\n" for step in range(3)))
    metrics.read()
    fresh = [json.dumps(metric(step)._replace(reference_loss=2.0)) for step in range(3)]
    (tmp_path / "draft").write_text("\n".join([fresh[0], "noise", "7", "[1, 2]", *fresh[1:], ""]))
    (tmp_path / "draft").replace(path)
    metrics.read()
    assert [(row.step, row.reference_loss) for row in metrics.rows] == [(0, 2.0), (1, 2.0), (2, 2.0)]
    path.write_text(fresh[0] + "\n")
    metrics.read()
    assert [row.step for row in metrics.rows] == [0]


def test_a_reader_far_behind_says_so_and_catches_up(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    live = LiveRun(writer.store, writer.info.id)
    for step in range(4):
        writer.step(step)
    line = len(metric_line(metric(0)))
    monkeypatch.setattr(files, "MOST_AT_ONCE", 2 * line + line // 2)
    seen = [writer.look(live) for _ in range(3)]
    assert [(len(s.steps), s.behind) for s in seen] == [(2, True), (4, False), (4, False)]
    assert {s.latest_step for s in seen} == {3}, "the newest step is seen at once"


def test_damage_in_the_midst_of_a_line_is_told_when_its_rows_are_asked_for(writer: Writer) -> None:
    writer.step(0)
    path = live_path(writer.folder, 3)
    path.write_bytes(path.read_bytes().replace(b'"memory":', b'"memory"'))
    snapshot = writer.look()
    assert snapshot.latest_step == 0 and snapshot.recording is not None
    with pytest.raises(ValueError):
        snapshot.recording.ops  # noqa: B018


def test_run_json_that_cannot_be_read_is_a_problem_in_words(writer: Writer) -> None:
    live = LiveRun(writer.store, writer.info.id)
    writer.step(0)
    known = writer.look(live)
    text = (writer.folder / "run.json").read_text()
    (writer.folder / "run.json").write_text(text[:100])
    broken = writer.look(live)
    assert broken.info.status == "corrupt" and broken.problem.startswith("run.json cannot be read")
    assert broken.steps == known.steps and broken.recording is known.recording
    (writer.folder / "run.json").write_text(text)
    assert writer.look(live).problem == ""
