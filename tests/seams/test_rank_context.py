"""A rank is the same wherever it runs: the fork server's and one that the environment describes do the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from engine.execution.rank_context import RankContext
from engine.execution.session import choose_backend, members
from engine.execution.worker import check_ranks_started
from engine.job.errors import JobRefused
from engine.job.job import Job
from engine.processes.launch import launch
from engine.recording.live_files import read_live
from tests.seams.environment_ranks import SKEW_NS, EnvironmentRank

JOB = Job.from_options(
    dp=2, pp=2, zero=1, layers=2, hidden=32, heads=4, seq=16, microbatches=2, batch=8, steps=2, clip=1.0
)
CLOCKS = ("start_ns", "end_ns", "cpu_ns", "time_ns")
Events = dict[str, dict[int, list[dict[str, Any]]]]


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Events]:
    """The job as the fork server's members do it."""
    folder, events = tmp_path_factory.mktemp("forked"), sorted_events()
    (folder / "live").mkdir()
    launch(
        members(JOB, folder, backend=choose_backend(4, 0), reference=folder / "reference.pt", floor=False),
        log_path=folder / "log.txt",
        run_json=None,
        on_event=lambda _, event: events[event["event"]][event.get("rank", -1)].append(event),
    )
    return folder, events


@pytest.fixture(scope="module")
def told_by_environment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Events]:
    """The same by ranks that the environment tells who they are, and whose clocks differ."""
    folder, events = tmp_path_factory.mktemp("environment"), sorted_events()
    (folder / "live").mkdir()
    assert start(folder, JOB, ranks=4).returncode == 0
    for path in sorted(folder.glob("events.*.jsonl")):
        for event in map(json.loads, path.read_text().splitlines()):
            events[event["event"]][event.get("rank", -1)].append(event)
    return folder, events


def sorted_events() -> Events:
    return defaultdict(lambda: defaultdict(list))


def start(folder: Path, job: Job, ranks: int) -> subprocess.CompletedProcess[str]:
    (folder / "job.toml").write_text(job.to_toml())
    command = [sys.executable, "-m", "tests.seams.environment_ranks", str(folder), str(ranks)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def rows(found: pa.Table) -> list[dict[str, Any]]:
    """All but the times, in the order in which each rank wrote them."""
    columns = [name for name in found.column_names if name not in CLOCKS]
    by_rank = defaultdict(list)
    for row in found.select(columns).to_pylist():
        by_rank[row["rank"]].append(row)
    return [row for rank in sorted(by_rank) for row in by_rank[rank]]


def test_both_record_the_same_operations_and_the_same_memory(
    forked: tuple[Path, Events], told_by_environment: tuple[Path, Events]
) -> None:
    (ops, memory), (other_ops, other_memory) = read_live(forked[0]), read_live(told_by_environment[0])
    assert rows(ops) == rows(other_ops) and ops.num_rows > 100
    assert rows(memory) == rows(other_memory)


def test_both_end_with_the_same_losses_and_weights_to_the_last_bit_and_proved(
    forked: tuple[Path, Events], told_by_environment: tuple[Path, Events]
) -> None:
    here, there = forked[1], told_by_environment[1]
    for rank in range(4):
        for name in ("loss", "grad_norm"):
            assert [e[name] for e in here["step"][rank]] == [e[name] for e in there["step"][rank]]
        mine, theirs = here["finished"][rank][0], there["finished"][rank][0]
        for name in ("fingerprint", "param_max_abs_diff", "param_max_rel_diff"):
            assert mine[name] == theirs[name], name
        assert theirs["param_max_rel_diff"] <= 1e-5
    assert there["reference"][-1][0]["losses"] == here["reference"][-1][0]["losses"]


def test_the_reference_is_made_once_for_all_ranks(told_by_environment: tuple[Path, Events]) -> None:
    told = [event for events in told_by_environment[1]["reference"].values() for event in events]
    assert len(told) == 2 and told[0] == told[1], "by rank 0, as it made it and as it read it"


def test_ranks_of_machines_with_other_clocks_are_put_on_one(told_by_environment: tuple[Path, Events]) -> None:
    folder, events = told_by_environment
    ops, memory = read_live(folder)
    for table, names in ((ops, ("start_ns", "end_ns")), (memory, ("time_ns",))):
        for name in names:
            behind = pc.greater(table["rank"], 0)
            assert pc.min(table.filter(behind)[name]).as_py() > SKEW_NS
            assert pc.max(table.filter(pc.invert(behind))[name]).as_py() < SKEW_NS
    assert {rank: event[0]["start_ns"] > SKEW_NS for rank, event in events["step"].items()} == {
        0: False, 1: True, 2: True, 3: True,
    }  # fmt: skip
    assert all(pc.greater_equal(ops["end_ns"], ops["start_ns"]).to_pylist())


def test_more_or_fewer_ranks_than_the_job_has_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    ended = start(tmp_path, JOB, ranks=2)
    assert ended.returncode == 1
    assert "needs 4 ranks, but 2 were started: start 4." in ended.stderr and "dp=2 × pp=2" in ended.stderr
    with pytest.raises(JobRefused, match="needs 1 ranks, but 3"):
        check_ranks_started(Job.from_options(), 3)
    check_ranks_started(JOB, 4)


def test_a_device_is_that_of_the_place_on_its_own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.toml").write_text(JOB.to_toml())
    for name, value in {"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}.items():
        monkeypatch.setenv(name, value)
    there: RankContext = EnvironmentRank.here(tmp_path, "cuda")
    assert (there.rank, there.world_size, there.device) == (9, 16, "cuda:1")


def test_a_rank_knows_nothing_of_the_fork_server() -> None:
    """Of the modules that make a rank, only the adapter knows who started it."""
    script = "import sys, engine.execution.worker; print([m for m in sys.modules if m.startswith('engine.processes')])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
