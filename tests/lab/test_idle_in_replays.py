"""What idle ranks wait for in replays, where streams queue and times coincide."""

from __future__ import annotations

from dataclasses import replace

from engine.prediction.replay.replay import replay_at
from engine.recording.tables import Op, Recorded
from lab.analysis.step.idle import Idle, bubble, idle_spans
from lab.analysis.step.overlap import overlap
from lab.analysis.step.step_ops import step_ops
from tests.engine.hand import JOB, S, priced, receive, reduction, send, wait, work
from tests.engine.written import op, recording_of


def idle(*rows: Op, **seconds: float) -> list[tuple[int, float, float, str]]:
    """(rank, start and end in seconds, cause) of each stretch of the replay."""
    return [(i.rank, i.start_ns / S, i.end_ns / S, i.cause) for i in _spans(*rows, **seconds)]


def _spans(*rows: Op, **seconds: float) -> list[Idle]:
    return idle_spans(step_ops(replay_at(recording_of(rows), JOB, priced(**seconds)), 0))


def both(*rows: Op) -> list[Op]:
    """The same rows on ranks 0 and 1."""
    return [replace(row, rank=rank) for rank in (0, 1) for row in rows]


def test_a_collective_that_waits_for_its_stream_is_under_way_not_a_straggler() -> None:
    rows = both(work(0, 0, "a"), reduction(0, 1, "x"), reduction(0, 2, "y"), wait(0, 3, ref=2))
    assert idle(*rows, a=1, x=5, y=2) == [(r, *span, "transfer") for r in (0, 1) for span in ((1, 6), (6, 8))]


def test_the_straggler_of_the_collective_before_is_to_blame() -> None:
    rows = [
        replace(row, name=f"a{row.rank}") if row.kind == "forward" else row
        for row in both(work(0, 0, "a"), reduction(0, 1, "x"), reduction(0, 2, "y"), wait(0, 3, ref=2))
    ]
    found = idle(*rows, a0=1, a1=4, x=5, y=2)
    assert found[:3] == [(0, 1, 4, "straggler"), (0, 4, 9, "transfer"), (0, 9, 11, "transfer")]


def test_a_message_behind_another_is_a_transfer_once_its_maker_is_done() -> None:
    rows = [
        work(0, 0, "a"), send(0, 1, to=1, name="first"), work(0, 2, "b"), send(0, 3, to=1, name="second", micro=1),
        receive(1, 0, source=0, name="one"), receive(1, 1, source=0, name="two", micro=1), wait(1, 2, ref=1),
    ]  # fmt: skip
    found = _spans(*rows, a=1, b=1, first=5, second=2)
    mine = [(i.start_ns / S, i.end_ns / S, i.cause) for i in found if i.rank == 1]
    assert mine == [(0, 1, "dependency"), (1, 6, "transfer"), (6, 8, "transfer")]
    assert "a on rank 0" in found[-3].why


def test_a_representative_counts_for_all_it_stands_for() -> None:
    """Rank 0 works 1 s of 4 and stands for three ranks, rank 3 works all the time."""
    rows = [work(0, 0, "a"), work(3, 0, "b")]
    like = {0: 0, 1: 0, 2: 0, 3: 3}
    out = replay_at(recording_of(rows), JOB, priced(a=1, b=4), ranks_like=like)
    job = type(JOB).from_options(dp=4)
    assert bubble(out, job, 0) == 1 - (3 * 1 + 4) / 16


def test_representatives_weigh_in_the_overlap() -> None:
    """One half hidden where rank 0 stands for three, all of it hidden on rank 3; 1 s of communication each."""
    rows = [
        op(rank=0, seq=0, kind="forward", name="a", start_ns=0, end_ns=1),
        op(rank=0, seq=1, kind="reduce", stream="dp", op="all_reduce", peers=(0, 3), start_ns=0, end_ns=2),
        op(rank=3, seq=0, kind="forward", name="b", start_ns=0, end_ns=2),
        op(rank=3, seq=1, kind="reduce", stream="dp", op="all_reduce", peers=(0, 3), start_ns=0, end_ns=2),
    ]  # fmt: skip
    all_rows = recording_of(rows)
    out = Recorded(all_rows.ops, all_rows.memory, all_rows.metrics, {0: 0, 1: 0, 2: 0, 3: 3})
    assert overlap(out, 0) == {"dp": (3 * 1 + 2) / 8}


def test_words_name_a_member_of_the_very_group() -> None:
    """Rank 1 stands for rank 3 too, but rank 0's own partner is rank 1, rank 2's is rank 3."""
    rows = [
        replace(row, name=f"a{row.rank}") if row.kind == "forward" else row
        for row in both(work(0, 0, "a"), reduction(0, 1, "x"), wait(0, 2, ref=1))
    ]
    swapped = [replace(row, peers=(0, 3)) if row.rank == 0 and row.peers else row for row in rows]
    out = replay_at(recording_of(swapped), JOB, priced(a0=1, a1=2, x=1), ranks_like={0: 0, 1: 1, 2: 0, 3: 1})
    assert idle_spans(step_ops(out, 0))[0].why.startswith("for rank 3 to join the all_reduce over the data axis")
