"""Slots against charts drawn by hand."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from engine.job.job import Job
from engine.program.compile import compile_job
from engine.program.program import Program
from lab.views.figures.pipeline.slot_table import SlotTable, slot_table

GPIPE = """
F0 F1 F2 F3 .  .  .  .  .  .  B0 B0 B1 B1 B2 B2 B3 B3
.  F0 F1 F2 F3 .  .  .  B0 B0 B1 B1 B2 B2 B3 B3 .  .
.  .  F0 F1 F2 F3 B0 B0 B1 B1 B2 B2 B3 B3 .  .  .  .
"""
ZB_H1 = """
F0 F1 .  I0 W0 I1 W1
.  F0 I0 F1 I1 W0 W1
"""


@dataclass
class Compiled:
    program: Program


def table(**options: Any) -> SlotTable:
    return slot_table(Compiled(compile_job(Job.from_options(**options))))


def test_gpipe_of_three_stages_and_four_microbatches_is_the_chart_drawn_by_hand() -> None:
    found = table(pp=3, layers=3, microbatches=4, schedule="gpipe")
    assert found.differences(GPIPE) == []
    assert (found.slots, found.idle, found.bubble) == (18, 18, Fraction(1, 3))
    assert found.order(1) == ["F0", "F1", "F2", "F3", "B0", "B1", "B2", "B3"]


def test_a_chart_that_differs_is_told_where() -> None:
    found = table(pp=3, layers=3, microbatches=4, schedule="gpipe")
    assert found.differences(GPIPE.replace("F3 .  .  .  B0", "F3 .  .  .  B3", 1)) == [(1, 8, "B0", "B3")]
    assert found.differences("F0")[0] == (0, 1, "F1", ".")


def test_chunks_are_named_where_a_rank_has_several() -> None:
    found = table(pp=2, layers=4, microbatches=2, schedule="interleaved", chunks=2)
    assert found.order(0)[:4] == ["F0c0", "F1c0", "F0c1", "F1c1"]
    assert found.rows[0].count("F0c0") == 1 and found.rows[0].count("B0c0") == 2


def test_split_backwards_show_their_parts() -> None:
    found = table(pp=2, layers=2, microbatches=2, schedule="zb-h1")
    assert found.differences(ZB_H1) == []  # the last rank's weight parts wait, so that rank 0 gets its gradients


def test_the_page_has_a_cell_for_every_slot_and_says_the_bubble() -> None:
    found = table(pp=2, layers=2, microbatches=2)
    page = found._repr_html_()
    assert page.count("scope='row'") == 2 and f"<th scope='col'>{found.slots}</th>" in page
    assert "6 of 18 cells idle: bubble 33.3%" in page
