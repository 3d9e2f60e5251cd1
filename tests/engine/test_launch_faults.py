"""Supervision: members that fail, stop or stand still are named, and their run ends."""

from __future__ import annotations

import errno
import signal
from pathlib import Path
from typing import Any

import pytest

from engine.processes.launch import Member, RunFailed
from engine.processes.root_cause import SystemTrouble
from tests.engine.launching import Sabotage, failure_of, kill, members, run

pytestmark = [pytest.mark.timed, pytest.mark.usefixtures("importable_targets")]


# -- failing members ---------------------------------------------------------------------------------------------


def test_a_killed_rank_ends_the_run_and_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, Sabotage(8, kill(5)), members(8, "troubled"))
    assert "killed by signal SIGKILL" in failure.cause
    assert failure.action.startswith("all_reduce")
    assert all("lost its connection" in other for other in failure.others)


@pytest.mark.parametrize(
    ("trouble", "cause", "words"),
    [
        ("raises", "raised ValueError: the loss is not a number", "in raises"),
        ("exits", "exited with status 3", "leaving early"),
        ("exits_politely", "exited with status 3", "SystemExit: 3"),
        ("vanishes", "exited before its work was done", ""),
        ("aborts", "killed by signal SIGABRT", "gloo::EnforceNotMet"),
        ("aborts", "killed by signal SIGABRT", "in aborts"),
        ("mismatches", "expected size. Is there a distributed collective mismatch", "in all_reduce"),
        ("emits_a_lambda", "raised", "in emits_a_lambda"),
        ("kills_itself", "killed by signal SIGKILL", ""),
    ],
)
def test_the_rank_that_failed_is_named_not_those_that_lost_their_peer(
    tmp_path: Path, trouble: str, cause: str, words: str
) -> None:
    sabotage = Sabotage(3)
    failure = failure_of(tmp_path, sabotage, members(3, "troubled", culprit=1, trouble=trouble))
    if trouble != "mismatches":  # gloo aborts whichever rank finds the mismatch first
        assert failure.member == "rank 1 (data 1)"
        assert failure.action == "forward block1 mb2"
    assert cause in failure.cause
    assert words in failure.traceback
    assert "_run" not in failure.traceback  # our own frames are nobody's business
    what, _, detail = failure.cause.partition(": ")
    assert f"{failure.member} {what} while in '{failure.action}'" in str(failure)
    assert detail in str(failure)


def test_what_the_system_refused_is_told_as_data_and_not_only_in_words(tmp_path: Path) -> None:
    who = members(2, "troubled", culprit=1, trouble="is_refused_by_the_system")
    failure = failure_of(tmp_path, Sabotage(2), who)
    assert failure.system == SystemTrouble(errno.ENOSPC, "/runs/live/rank001.jsonl")
    assert failure_of(tmp_path, Sabotage(2), members(2, "troubled", culprit=1, trouble="raises")).system is None


def test_an_error_raised_because_a_peer_is_gone_is_a_consequence(tmp_path: Path) -> None:
    who = members(2, "troubled", culprit=0, trouble="raises_from_lost_peer")
    who[1] = Member("rank 1", "fake_ranks:troubled", {"culprit": 1, "trouble": "raises"})
    failure = failure_of(tmp_path, Sabotage(2), who)
    assert failure.member == "rank 1"
    assert "lost its connection" in failure.others[0]


def test_a_target_that_does_not_exist_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(
        RunFailed, match=r"rank 0 .* raised ModuleNotFoundError while in 'starting': No module named 'nowhere'"
    ):
        run(tmp_path, [Member("rank 0 (data 0)", "nowhere:f", {})])
    with pytest.raises(ValueError, match=r"package\.module:function"):
        run(tmp_path, [Member("rank 0", "nowhere", {})])


def test_what_a_failed_member_started_ends_too(tmp_path: Path) -> None:
    sabotage = Sabotage(3)  # two ranks and the child of one
    failure = failure_of(tmp_path, sabotage, members(2, "troubled", culprit=1, trouble="has_a_child_and_raises"))
    assert "ValueError" in failure.cause


# -- standing still ----------------------------------------------------------------------------------------------


def test_a_stopped_rank_is_a_hang_and_is_named(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, Sabotage(4, kill(2, signal.SIGSTOP)), members(4, "troubled"))
    assert "was stopped by signal SIGSTOP" in failure.cause
    assert len(failure.others) == 3


def test_a_sleeping_rank_is_a_hang_and_shows_where_it_sleeps(tmp_path: Path) -> None:
    who = members(3, "troubled", culprit=2, trouble="sleeps")
    failure = failure_of(tmp_path, Sabotage(3), who, hang_seconds=0.8)
    assert failure.member == "rank 2 (data 2)"
    assert "made no progress" in failure.cause
    assert "in sleeps" in failure.traceback
    assert "rank 0 (data 0) was waiting in 'all_reduce 3'" in failure.others


def test_a_rank_that_never_joins_is_a_hang_though_the_others_poll_for_it(tmp_path: Path) -> None:
    failure = failure_of(tmp_path, Sabotage(8), members(8, "never_joins"), hang_seconds=0.8)
    assert failure.member == "rank 1 (data 1)"
    assert failure.others[0] == "rank 0 (data 0) was waiting in 'joining the others'"


def test_a_deadlock_lists_who_waits_for_what_though_one_has_finished(tmp_path: Path) -> None:
    with pytest.raises(RunFailed) as caught:
        run(tmp_path, members(3, "deadlocks"), hang_seconds=0.8)
    failure = caught.value.failure
    assert "deadlock" in failure.cause
    assert failure.action == "recv act mb0 <- rank 1"
    assert failure.others == ("rank 1 (data 1) was waiting in 'recv act mb0 <- rank 0'",)


def test_a_rank_that_spins_is_ended_by_the_longer_limit(tmp_path: Path) -> None:
    who = members(2, "troubled", culprit=1, trouble="spins")
    failure = failure_of(tmp_path, Sabotage(2), who, hang_seconds=0.3, spin_seconds=0.2)
    assert failure.member == "rank 1 (data 1)"
    assert "in spins" in failure.traceback


# -- two groups --------------------------------------------------------------------------------------------------


def beside(function: str, **payload: Any) -> Member:
    return Member("reference", f"fake_ranks:{function}", payload, group="reference")


def test_a_stopped_rank_is_named_though_a_second_group_makes_progress(tmp_path: Path) -> None:
    ranks = members(4, "troubled", ranks=4, culprit=2, trouble="stops_itself")
    failure = failure_of(tmp_path, Sabotage(4), [*ranks, beside("works_then_finishes", seconds=60)])
    assert failure.member == "rank 2 (data 2)"
    assert "was stopped by signal SIGSTOP" in failure.cause
    assert len(failure.others) == 3  # the ranks that wait for it; the reference has no part in it


def test_a_stopped_reference_is_named_though_the_ranks_make_progress(tmp_path: Path) -> None:
    who = [*members(2, "troubled", ranks=2), beside("stops_itself")]
    failure = failure_of(tmp_path, Sabotage(2), who)
    assert (failure.member, failure.others) == ("reference", ())


def test_ranks_that_wait_for_a_slow_reference_are_no_hang(tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    who = [*members(2, "awaits_a_file", file=file), beside("leaves_a_file", file=file, seconds=4)]
    assert len(run(tmp_path, who, hang_seconds=0.8)) == 2


def test_a_rank_stopped_while_it_waits_for_the_reference_is_named(tmp_path: Path) -> None:
    who = members(3, "awaits_a_file", file=str(tmp_path / "file"), culprit=1)
    failure = failure_of(tmp_path, Sabotage(3), [*who, beside("works_then_finishes", seconds=60)])
    assert failure.member == "rank 1 (data 1)"
    assert "was stopped by signal SIGSTOP" in failure.cause


def test_waiting_for_what_a_reference_that_has_ended_did_not_leave_is_a_hang(tmp_path: Path) -> None:
    who = members(2, "awaits_a_file", file=str(tmp_path / "file"))
    failure = failure_of(tmp_path, Sabotage(2), [*who, beside("quiet")], hang_seconds=0.8)
    assert failure.action == "waiting for the file"
    assert "all that it could wait for had ended" in failure.cause
