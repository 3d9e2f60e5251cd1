"""Wrong orders of forwards and backwards are told their fault and its place."""

from __future__ import annotations

from typing import Any

import pytest

import lab
from lab.learning.exercises import check
from tests.lab.exercise_answers import Answer, says


@pytest.fixture(autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDLAB_RUNS", str(tmp_path_factory.mktemp("runs")))


def one_f_one_b(kind: str) -> Answer:
    def answer(rank: int, p: int, m: int) -> Any:
        ups, downs = [f"F{k}" for k in range(m)], [f"B{k}" for k in range(m)]
        if kind == "gpipe":
            return " ".join(ups + downs)
        if kind == "naive":
            return " ".join(word for pair in zip(ups, downs, strict=True) for word in pair)
        warm = min({"early": p - rank - 2, "late": p - rank}.get(kind, p - 1 - rank), m)
        warm = max(warm, 0)
        order = ups[:warm]
        for up, down in zip(ups[warm:], downs, strict=False):
            order += [up, down]
        order += downs[m - warm :]
        if kind == "list":
            return order
        if kind == "once too few":
            return " ".join(order[:-1])
        if kind == "spelt":
            return " ".join(order).replace("F", "forward ")
        return " ".join(order)

    return answer


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpipe", "On rank 0 of 2 with 4 micro-batches, it holds 3 micro-batches after F2: .* at most p − r = 2"),
        ("late", "it holds 3 micro-batches after F2"),
        ("early", "On rank 0 of 2 with 4 micro-batches, its first backward comes after 1 forward"),
        ("list", 'must return text such as "F0 F1 B0 B1", and returned a list'),
        ("once too few", "On rank 0 of 2 with 4 micro-batches, the backward of micro-batch 3 is missing"),
        ("spelt", "'forward' in .* cannot be read: write F0 or B0"),
        ("naive", "first backward comes after 1 forward"),
    ],
)
def test_a_wrong_1f1b_is_told_its_fault(kind: str, words: str) -> None:
    says("schedule_1f1b", one_f_one_b(kind), words)


def test_orders_that_deadlock_are_told_with_the_grid() -> None:
    def answer(rank: int, p: int, m: int) -> str:
        alone = " ".join(f"F{k} B{k}" for k in range(m))
        return alone if rank < p - 1 or p == 1 else " ".join([f"F{k}" for k in range(m)] + [f"B{k}" for k in range(m)])

    says(
        "schedule_1f1b",
        answer,
        r"2 ranks and 4 micro-batches the ranks cannot run together: .*waits for ever(.|\n)*pipeline 1",
    )


def test_a_backward_before_its_forward_is_told() -> None:
    def answer(rank: int, p: int, m: int) -> str:
        return " ".join(f"B{k} F{k}" for k in range(m))

    says("schedule_1f1b", answer, "B0 comes before F0")


def own(kind: str) -> Any:
    p, m = 4, 8
    lanes = {
        "gpipe": [[f"F{k}" for k in range(m)] + [f"B{k}" for k in range(m)]] * p,
        "weights last": [[f"F{k} I{k}" for k in range(m)] + [f"W{k}" for k in range(m)]] * p,
        "deadlock": [[f"F{k} B{k}" for k in range(m)]] * (p - 1)
        + [[f"F{k} F{k + 1} B{k} B{k + 1}" for k in range(0, m, 2)]],
        "missing": [[f"F{k} B{k}" for k in range(m - 1)]] * p,
        "short": [["F0", "B0"]],
    }
    return "\n".join(" ".join(lane) for lane in lanes[kind])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpipe", "equal to one process .*Time: 33 slots, and the target is fewer than 33.*Memory: rank 0 holds 8"),
        ("weights last", "Memory: rank 0 holds 8 micro-batches at once, and the target is at most 4"),
        ("deadlock", r"refused: pipeline 0, .*it waits for ever for send_grad mb0 from pipeline 1(.|\n)*<-- here"),
        ("missing", "refused: .*mb7 is missing"),
        ("short", "refused: the schedule has 1 ranks and pp=4"),
    ],
)
def test_an_own_schedule_that_falls_short_is_told_where(kind: str, words: str) -> None:
    says("own_schedule", own(kind), words)


def test_1f1b_itself_misses_the_time_and_its_card_has_the_known_numbers() -> None:
    """(m + p − 1) · 3 slots, bubble (p−1)/(m+p−1), p − r in flight (Narayanan et al. 2021); naive m · p · 3."""
    from engine.job.job import Job
    from engine.program.schedules.one_f_one_b import one_f_one_b as lanes
    from engine.program.schedules.text import written_text
    from lab.learning.exercises.tasks.own_schedule import OPTIONS

    def answer(p: int, m: int, v: int) -> Any:
        return written_text(Job.from_options(**OPTIONS), lanes(p, m, v))

    verdict = check("own_schedule", answer)
    assert not verdict.passed and "Time: 33 slots" in verdict.words and "Memory" not in verdict.words
    rows = {row["schedule"]: row for row in verdict.details["score"]}
    assert rows["yours"] == rows["1f1b"] | {"schedule": "yours"}
    assert [rows[name]["slots"] for name in ("naive", "gpipe", "1f1b")] == [96, 33, 33]
    assert rows["1f1b"]["bubble"] == "27 %" and rows["1f1b"]["on each rank"] == "4 3 2 1"
    assert lab.load(verdict.details["run"]).summary["parity"]["passed"]
