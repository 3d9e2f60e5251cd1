"""Holistic Trace Analysis, a program that nobody here wrote, finds in a run what the lab finds."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.job.job import Job
from lab.analysis.step.intervals import Spans, both, either, length, spans
from lab.analysis.step.overlap import communicating, computing_spans
from lab.analysis.step.step_ops import step_ops, typical_step
from lab.facade import Run
from lab.views.exports import export
from tests.lab.fake_run import FakeRun, fake_run
from tests.lab.synthetic import message, op, recording_of

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_dir=sys.argv[1])
times = found.get_temporal_breakdown(visualize=False).set_index("rank")
times = times.join(found.get_comm_comp_overlap(visualize=False).set_index("rank"))
print(times.to_json(orient="index"))
"""
IDLE, COMPUTE, OTHER, ALL = "idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)"
OVERLAP = "comp_comm_overlap_pctg"


def analysed(folder: Path) -> dict[int, dict[str, float]]:
    """What HTA says of each rank: µs, and the overlap in percent with two decimals. In a process of its own, for it
    starts some.
    """
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", HTA, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return {int(rank): values for rank, values in json.loads(done.stdout.splitlines()[-1]).items()}


def test_times_worked_out_by_hand_are_those_that_holistic_trace_analysis_finds(tmp_path: Path) -> None:
    """Rank 0 computes 0–4 ms, with a collective inside at 1–2, and 6–7; a reduction runs from 3 to 5.5. Rank 1 asks at
    0 for what rank 0 sends at 4, has it at 6, and computes from 8 to 9.
    """
    ms = 1_000_000
    send, receive = message(recv_seq=0, posted=0, sent=4 * ms, there=6 * ms)
    inner = {"stream": "tp", "kind": "collective", "op": "all_reduce", "peers": (0, 1)}
    outer = {"stream": "dp", "kind": "reduce", "op": "reduce_scatter", "peers": (0, 2)}
    rows = [
        op(rank=0, seq=0, kind="forward", unit="block0", start_ns=0, end_ns=4 * ms),
        op(rank=0, seq=1, parent=0, start_ns=1 * ms, end_ns=2 * ms, **inner),
        op(rank=0, seq=2, start_ns=3 * ms, end_ns=5 * ms + ms // 2, **outer),
        replace(send, seq=3, end_ns=7 * ms),
        op(rank=0, seq=4, kind="wait", ref=2, start_ns=4 * ms, end_ns=6 * ms),
        op(rank=0, seq=5, kind="backward", unit="block0", start_ns=6 * ms, end_ns=7 * ms),
        receive,
        op(rank=1, seq=1, kind="forward", unit="block1", start_ns=8 * ms, end_ns=9 * ms),
    ]
    base = fake_run(Job.from_options(pp=2))
    folder = export(FakeRun(base.job, recording_of(rows), base.summary), "hta", tmp_path / "made")
    assert sorted(path.name for path in folder.iterdir()) == ["rank000.json", "rank001.json"]
    first, second = analysed(folder).values()
    # computing 0–1, 2–4, 6–7; communicating 1–2, 3–5.5, of which 3–4 hidden: 1 of 3.5; nothing 5.5–6
    assert [first[key] for key in (COMPUTE, OTHER, IDLE, ALL)] == [4000, 2500, 500, 7000]
    assert first[OVERLAP] == round(100 / 3.5, 2)
    # communicating 4–6, nothing 6–8, computing 8–9
    assert [second[key] for key in (COMPUTE, OTHER, IDLE, ALL)] == [1000, 2000, 2000, 5000]
    assert second[OVERLAP] == 0


def test_in_a_real_run_it_finds_the_times_and_the_overlap_that_the_lab_finds(real_run: Run, tmp_path: Path) -> None:
    """Within what rounding can do: each edge of merged spans is off by at most half a µs."""
    step = typical_step(real_run.recording)
    assert step is not None
    found = analysed(export(real_run, "hta", tmp_path / "step", step=step))
    assert list(found) == list(range(8))
    ours = times_by_rank(real_run, step)
    assert any(length(both(*ours[rank])) for rank in ours), "with nothing hidden the overlap would prove nothing"
    for rank, (computing, talking) in ours.items():
        busy, hidden = either(computing, talking), both(computing, talking)
        whole = int(busy[-1, 1] - busy[0, 0])
        near(found[rank][ALL], whole, 1)
        near(found[rank][COMPUTE], length(computing), len(computing))
        near(found[rank][IDLE], whole - length(busy), len(busy))
        near(found[rank][OTHER], length(busy) - length(computing), len(busy) + len(computing))
        share = length(hidden) / length(talking)
        spread = 1000 * (len(hidden) + share * len(talking)) / (length(talking) - 1000 * len(talking))
        assert found[rank][OVERLAP] == pytest.approx(100 * share, abs=100 * spread + 0.005)


def near(microseconds: float, ns: int, spans: int) -> None:
    assert microseconds == pytest.approx(ns / 1000, abs=spans)


def times_by_rank(run: Run, step: int) -> dict[int, tuple[Spans, Spans]]:
    """(when it computes, when it communicates on any axis) of each rank, as the lab defines them."""
    ops = step_ops(run.recording, step)
    counted, start = communicating(ops)
    return {
        rank: (computing_spans(ops, rows), spans(start[rows][counted[rows]], ops.end[rows][counted[rows]]))
        for rank, rows in ops.by_rank()
    }


def kernels(path: Path) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["cat"] == "kernel"]


def test_all_steps_hold_every_step_s_computing_and_no_stream_does_two_things_at_once(
    real_run: Run, tmp_path: Path
) -> None:
    folder = export(real_run, "hta", tmp_path / "all")
    ours = [times_by_rank(real_run, step["step"]) for step in real_run.steps]
    for rank in range(8):
        made = kernels(folder / f"rank{rank:03d}.json")
        computing = sum(e["dur"] for e in made if not e["name"].startswith("nccl"))
        near(computing, sum(length(step[rank][0]) for step in ours), 2 * len(made))
        for stream in {e["args"]["stream"] for e in made}:
            times = np.array([(e["ts"], e["ts"] + e["dur"]) for e in made if e["args"]["stream"] == stream])
            assert (times[1:, 0] >= times[:-1, 1]).all()
        assert {e["name"].split()[0] for e in made if e["name"].startswith("nccl")} == {
            "ncclDevKernel_AllReduce", "ncclDevKernel_ReduceScatter", "ncclDevKernel_AllGather",
            "ncclDevKernel_SendRecv",
        }  # fmt: skip


def test_without_communication_there_are_only_computations(tmp_path: Path) -> None:
    folder = export(fake_run(Job()), "hta", tmp_path / "one")
    made = kernels(folder / "rank000.json")
    assert {e["args"]["stream"] for e in made} == {1} and not [e for e in made if e["name"].startswith("nccl")]
