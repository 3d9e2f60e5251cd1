"""The grid that refusals show."""

from __future__ import annotations

from engine.program.checks.check import grid
from engine.program.compile import compile_job
from engine.program.dryrun import dry_run
from engine.program.kinds import KINDS
from engine.program.program import Action, Program
from tests.engine.rewriting import (
    PIPE,
)


def test_the_grid_marks_the_action_in_its_cell() -> None:
    program = compile_job(PIPE)
    at = next(i for i, a in enumerate(program.lanes[0]) if str(a) == "forward block1 mb2 stage0")
    rows = grid(program, (0, at), 200).splitlines()
    assert rows[0].split()[2:8] == ["F0", "F0", "F1", "F1", ".", "."] and rows[0].endswith("<-- here")
    assert rows[0].count("*") == 1 and "F2 *F2" in rows[0] and "*" not in rows[1]


def test_a_grid_wider_than_the_terminal_ends_in_an_ellipsis_and_keeps_the_mark() -> None:
    program = compile_job(PIPE)
    whole, cut = grid(program, width=500).splitlines(), grid(program, width=60).splitlines()
    assert all("…" not in row for row in whole) and all(row.endswith("…") and len(row) <= 60 for row in cut)
    for pp_rank, i, action in program:
        if action.kind.computes:
            marked = grid(program, (pp_rank, i), 60).splitlines()
            assert "*" in marked[pp_rank] and max(map(len, marked)) <= 60


def test_a_dry_run_survives_actions_without_their_fields() -> None:
    bare = Program((tuple(map(Action, KINDS)), tuple(map(Action, reversed([*KINDS])))))
    assert dry_run(bare).stuck and "pipeline 1:" in grid(bare, (0, 3))
