"""The trace for Perfetto: whole by a strict checker, and in it every operation, message and byte of the recording."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lab
from engine.job.job import Job
from engine.recording.tables import CATEGORIES, MemoryRow
from lab.facade import Run
from lab.views.exports import export_bytes
from lab.views.exports.perfetto import microseconds, trace_events
from tests.lab.fake_run import FakeRun, fake_run
from tests.lab.synthetic import message, op, recording_of
from tests.lab.trace_checker import ns, problems

Event = dict[str, Any]

JOBS = {
    "one rank": {},
    "cube": {"dp": 2, "tp": 2, "pp": 2, "zero": 1},
    "interleaved": {"pp": 2, "chunks": 2, "layers": 4, "schedule": "interleaved", "microbatches": 4},
    "zero-bubble": {"pp": 4, "layers": 4, "schedule": "zb-h1", "microbatches": 8},
    "gathered": {"dp": 4, "zero": 3},
}


def written(run: Any, step: int | None = None) -> dict[str, Any]:
    """The file, read again."""
    _, content, _ = export_bytes(run, "perfetto", step)
    found: dict[str, Any] = json.loads(content)
    return found


def of(trace: dict[str, Any], phase: str) -> list[Event]:
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def names(trace: dict[str, Any], what: str) -> dict[Any, str]:
    """pid, or (pid, tid) → name."""
    found = [e for e in of(trace, "M") if e["name"] == what]
    return {(e["pid"], e["tid"]) if "tid" in e else e["pid"]: e["args"]["name"] for e in found}


def by_hand(**changes: int) -> FakeRun:
    """Two stages on two ranks: micro-batch 3 goes from rank 0 to rank 1. Times begin at 5 s."""
    clock = 5_000_000_000
    make = op(rank=0, seq=0, kind="forward", name="forward block0 mb3", microbatch=3, stage=0, flops=77)
    send, receive = message(recv_seq=0, posted=0, sent=4_000_001, there=changes.get("there", 5_000_000))
    wait = op(rank=1, seq=1, kind="wait", name="wait", ref=0, start_ns=0, end_ns=5_000_000)
    rows = [replace(make, end_ns=4_000_000), replace(send, seq=1, end_ns=4_500_000), receive, wait]
    rows = [replace(row, start_ns=row.start_ns + clock, end_ns=row.end_ns + clock) for row in rows]
    memory = [MemoryRow(-1, 0, 1_000, "params", 40), MemoryRow(0, 0, clock + 1_500, "activations", 9)]
    run = fake_run(Job.from_options(pp=2))
    return FakeRun(run.job, recording_of(rows, memory), run.summary)


def slices(trace: dict[str, Any]) -> set[tuple[str, str, str, float, float]]:
    """(process, track, name, start, length)."""
    processes, threads = names(trace, "process_name"), names(trace, "thread_name")
    return {
        (processes[e["pid"]].split(" (")[0], threads[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"])
        for e in of(trace, "X")
    }


def test_two_ranks_and_a_message_come_out_as_worked_out_by_hand() -> None:
    trace = written(by_hand())
    assert problems(trace) == []
    assert slices(trace) == {
        ("rank 0", "steps", "step 0", 0, 4500), ("rank 1", "steps", "step 0", 0, 5000),
        ("rank 0", "compute", "forward block0 mb3", 0, 4000), ("rank 1", "compute", "wait", 0, 5000),
        ("rank 0", "pp_act", "", 4000.001, 499.999), ("rank 0", "pp_act", "sent", 4000.001, 0),
        ("rank 1", "pp_act", "", 4000.001, 999.999),  # from when it was both asked for and sent
    }  # fmt: skip
    (source,), (end,) = of(trace, "s"), of(trace, "f")
    assert (source["pid"], source["ts"], end["pid"], end["ts"]) == (1, 4000.001, 2, 4000.001)
    forward = next(e for e in of(trace, "X") if e["cat"] == "forward")
    assert forward["args"] == {"microbatch": 3, "stage": 0, "flops": 77}
    sent = next(e for e in of(trace, "X") if e["cat"] == "send_act")
    assert sent["args"]["ranks"] == "0, 1" and sent["args"]["logical_bytes"] == 50 and sent["args"]["axis"] == "pp"


def test_memory_counts_from_the_beginning_with_what_was_held_before() -> None:
    counted = of(written(by_hand()), "C")
    none = dict.fromkeys(CATEGORIES, 0)
    assert [(e["pid"], e["ts"], e["args"]) for e in counted] == [
        (1, 0, none | {"params": 40}),
        (1, 1.5, none | {"params": 40, "activations": 9}),
    ]


def test_a_message_there_before_it_was_sent_by_the_clock_of_another_machine_has_no_arrow() -> None:
    trace = written(by_hand(there=3_000_000))
    assert problems(trace) == [] and of(trace, "s") == of(trace, "f") == []


@pytest.mark.parametrize("options", JOBS.values(), ids=list(JOBS))
def test_nothing_is_wrong_with_a_trace_and_no_operation_is_missing(options: dict[str, Any]) -> None:
    run = fake_run(Job.from_options(**options))
    trace = written(run)
    assert problems(trace) == []
    _holds_everything(trace, run)


def test_a_real_run_comes_out_whole(real_run: Run) -> None:
    trace = written(real_run)
    assert problems(trace) == []
    _holds_everything(trace, real_run)
    assert names(trace, "process_name")[4] == "rank 3 (data 1, tensor 1, pipeline 0)"
    streams = {name.split()[0] for name in names(trace, "thread_name").values()}
    assert streams == {"steps", "compute", "tp", "dp", "pp_act", "pp_grad", "world"}
    assert trace["otherData"]["run"] == real_run.id and Job.from_options(**real_run.info.job) == real_run.job


def _holds_everything(trace: dict[str, Any], run: Any) -> None:
    """Every operation once, at its length to the nanosecond; messages as long as they were under way."""
    ops = run.recording.ops
    threads = names(trace, "thread_name")
    lengths: dict[tuple[int, str, str], int] = defaultdict(int)
    counts: Counter[str] = Counter()
    for e in of(trace, "X"):
        if e["cat"] != "mark":
            counts[e["cat"]] += 1
            lengths[e["pid"] - 1, threads[e["pid"], e["tid"]].split()[0], e["cat"]] += ns(e["dur"])
    assert counts == Counter(ops["kind"].to_pylist())
    spent = ops.append_column("ns", pc.subtract(ops["end_ns"], ops["start_ns"]))
    for row in spent.group_by(["rank", "stream", "kind"]).aggregate([("ns", "sum")]).to_pylist():
        found = lengths[row["rank"], row["stream"], row["kind"]]
        assert found <= row["ns_sum"] if row["kind"].startswith("recv") else found == row["ns_sum"]
    sends = counts["send_act"] + counts["send_grad"]
    assert sum(e["name"] == "sent" for e in of(trace, "X")) == len(of(trace, "s")) == sends
    assert sends == counts["recv_act"] + counts["recv_grad"]


def test_each_arrow_of_a_real_run_leaves_its_send_and_reaches_its_receive(real_run: Run) -> None:
    trace = written(real_run)
    at = {(e["pid"], e["tid"], e["ts"]): e for e in of(trace, "X")}  # the innermost comes last
    ends = {e["id"]: at[e["pid"], e["tid"], e["ts"]] for e in of(trace, "f")}
    outer = {(e["pid"], e["tid"], e["ts"]): e for e in of(trace, "X") if e["cat"].startswith("send")}
    stage = {"send_act": 1, "send_grad": -1}
    for source in of(trace, "s"):
        assert at[source["pid"], source["tid"], source["ts"]]["name"] == "sent"
        send, receive = outer[source["pid"], source["tid"], source["ts"]], ends[source["id"]]
        assert receive["cat"] == send["cat"].replace("send", "recv")
        assert receive["args"]["microbatch"] == send["args"]["microbatch"]
        assert receive["args"]["stage"] == send["args"]["stage"] + stage[send["cat"]]
        assert set(receive["args"]["ranks"].split(", ")) == set(send["args"]["ranks"].split(", "))


def test_the_most_memory_that_a_real_trace_shows_is_what_the_run_reports(real_run: Run) -> None:
    trace = written(real_run)
    for row in real_run.summary["memory"]["per_rank"]:
        held = [e["args"] for e in of(trace, "C") if e["pid"] == row["rank"] + 1]
        assert max(sum(values.values()) for values in held) == row["total_peak"]
        assert max(values["activations"] for values in held) == row["activations_peak"]
        assert held[-1]["optimizer"] == row["optimizer"]


def test_one_step_alone_begins_at_zero_and_holds_only_its_own(real_run: Run) -> None:
    trace = written(real_run, step=1)
    assert problems(trace) == []
    assert {e["name"] for e in of(trace, "X") if e["cat"] == "mark"} == {"step 1", "sent"}
    ops = real_run.recording.ops.filter(pc.equal(real_run.recording.ops["step"], 1))
    length = (pc.max(ops["end_ns"]).as_py() - pc.min(ops["start_ns"]).as_py()) / 1000
    assert min(e["ts"] for e in of(trace, "X")) == 0
    assert max(e["ts"] + e["dur"] for e in of(trace, "X")) == pytest.approx(length)
    assert all(0 <= e["ts"] <= length for e in of(trace, "C"))


def test_a_simulated_run_names_the_ranks_that_stand_for_others() -> None:
    run = lab.simulate(model="gpt3-175b", dp=16, tp=8, pp=8, microbatches=16)
    trace = written(run)
    assert problems(trace) == [] and of(trace, "s")
    alike = Counter(run.recording.stands_for.values())
    processes = names(trace, "process_name")
    assert len(processes) == len(alike) < 1024 == sum(alike.values())
    for rank, count in alike.items():
        assert processes[rank + 1].startswith(f"rank {rank} (data ")
        assert processes[rank + 1].endswith(f") and {count - 1} like it" if count > 1 else ")")


@given(st.integers(0, 10**14))
def test_readers_that_cut_off_or_round_get_every_nanosecond_back(time: int) -> None:
    read = json.loads(json.dumps(microseconds(time)))
    assert int(read * 1000) == round(read * 1000) == time


def _overlap(trace: dict[str, Any]) -> None:
    first = next(e for e in of(trace, "X") if e["cat"] == "forward")
    trace["traceEvents"].append(first | {"ts": first["ts"] + first["dur"] / 2})


def _nameless(trace: dict[str, Any]) -> None:
    trace["traceEvents"].remove(next(e for e in of(trace, "M") if e["name"] == "thread_name"))


def _same_thread_id(trace: dict[str, Any]) -> None:
    threads = [e for e in of(trace, "M") if e["name"] == "thread_name"]
    threads[-1]["tid"] = threads[0]["tid"]


def _half_an_arrow(trace: dict[str, Any]) -> None:
    trace["traceEvents"].remove(of(trace, "f")[0])


def _arrow_beside(trace: dict[str, Any]) -> None:
    of(trace, "f")[0]["ts"] += 0.001


def _negative(trace: dict[str, Any]) -> None:
    of(trace, "C")[0]["args"]["params"] = -1


FAULTS = {
    "reaches out of": _overlap,
    "without a name": _nameless,
    "times the thread": _same_thread_id,
    "with one end": _half_an_arrow,
    "outside of slices": _arrow_beside,
    "below zero": _negative,
}


@pytest.mark.parametrize("words", FAULTS)
def test_the_checker_finds_what_it_is_there_for(words: str) -> None:
    trace = written(by_hand())
    spoil: Callable[[dict[str, Any]], None] = FAULTS[words]
    spoil(trace)
    assert any(words in problem for problem in problems(trace))


def test_overlapping_operations_of_a_stream_get_tracks_of_their_own() -> None:
    times = [(0, 30), (10, 20), (15, 40), (20, 50), (30, 60)]
    rows = [
        op(seq=i, stream="dp", kind="reduce", name=f"reduce {i}", op="all_reduce", start_ns=a * 1000, end_ns=b * 1000)
        for i, (a, b) in enumerate(times)
    ]
    run = fake_run(Job())
    trace = {"traceEvents": list(trace_events(FakeRun(run.job, recording_of(rows), run.summary)))}
    assert problems(trace) == []
    tracks = {name: track for _, track, name, _, _ in slices(trace) if track != "steps"}
    expected = ["dp", "dp 2", "dp 3", "dp 2", "dp"]  # the first track that is free
    assert tracks == {f"reduce {i}": track for i, track in enumerate(expected)}
