"""The zero-bubble paper's own figures: its measured times go in, its bubble rates come out."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from engine.program.dryrun import dry_run
from engine.program.kinds import Kind
from engine.program.passes.messages import add_messages
from engine.program.program import Action, Program
from engine.program.schedules.one_f_one_b import ScheduleFunction, interleaved, one_f_one_b
from engine.program.schedules.zero_bubble import zb_h1, zb_h2

TABLE: list[dict[str, Any]] = json.loads((Path(__file__).parent / "zero_bubble_table5.json").read_text())["rows"]


def name(row: dict[str, Any]) -> str:
    return f"{row['model']}-m{row['m']}"


def rate(row: dict[str, Any], schedule: ScheduleFunction, chunks: int = 1) -> Fraction:
    """The bubble rate of a schedule with the row's times; each chunk takes its share of them."""
    forward, inputs, weights, delay = (Fraction(str(row[t])) for t in ("TF", "TB", "TW", "Tcomm"))
    times = {
        Kind.FORWARD: forward / chunks,
        Kind.BACKWARD: (inputs + weights) / chunks,
        Kind.BACKWARD_INPUT: inputs / chunks,
        Kind.BACKWARD_WEIGHT: weights / chunks,
    }

    def cost(action: Action) -> Fraction:
        return times.get(action.kind, Fraction(0))

    lanes = add_messages(schedule(row["p"], row["m"], chunks), [*range(row["p"])] * chunks, early=False)
    return dry_run(Program(lanes), cost, delay).span_bubble()


@pytest.mark.parametrize("row", TABLE, ids=name)
@pytest.mark.parametrize(("schedule", "called"), [(one_f_one_b, "1F1B"), (zb_h1, "ZB-H1"), (zb_h2, "ZB-H2")])
def test_the_published_bubble_rates_come_out_to_all_four_decimals(
    row: dict[str, Any], schedule: ScheduleFunction, called: str
) -> None:
    assert round(float(rate(row, schedule)), 4) == row["bubble"][called]


CHUNKS = {"1.5B": 3, "6.2B": 4}  # one layer a chunk on 8 ranks: 22 and 30 layers, and the ends count as one each


@pytest.mark.parametrize("row", TABLE, ids=name)
def test_interleaved_1f1b_comes_within_four_thousandths_of_the_published_rate(row: dict[str, Any]) -> None:
    above = float(rate(row, interleaved, CHUNKS[row["model"]])) - row["bubble"]["1F1B-I"]
    assert 0 < above < 0.004


def test_a_bubble_by_the_wall_clock_is_not_what_the_paper_counts() -> None:
    row = TABLE[3]
    lanes = add_messages(zb_h2(row["p"], row["m"], 1), range(row["p"]), early=False)
    walk = dry_run(Program(lanes), lambda a: int(a.kind.computes))
    assert walk.span_bubble() == 0 < walk.bubble() == Fraction(7, 3 * 24 + 7)
