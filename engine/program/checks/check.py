"""Is a program right? Every layer once per micro-batch, messages matched, parameters present, no deadlock.

A program may be written by hand, so a refusal names the action, says what it needs and when that would be ready, and
shows the rank × time grid with the action marked. Here each action is read by itself; the rules about the program as
a whole are in `engine.program.checks.rules`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from engine.job.axes import dividing, sharding_axis
from engine.job.errors import told
from engine.job.job import Job
from engine.model.unit_kinds import kind_of
from engine.program.checks.context import Case, Complaint
from engine.program.checks.rules import RULES
from engine.program.dryrun import DryRun, dry_run
from engine.program.kinds import Kind
from engine.program.program import Action, Program

_HERE = "   <-- here"
_CUT = "…"
Mark = tuple[int, int]  # pipeline rank and position of the action in question; one past the last is the lane's end


class ProgramError(ValueError):
    """The program would not train this job. The message says which action and why, and shows the grid."""


def check_program(program: Program, job: Job) -> None:
    """Raises `ProgramError` with the first fault found.

    What a program holds needs no rule of its own. Each stage computes each micro-batch once, so a lane never holds
    more than microbatches × chunks stage activations, and every activation, message, gathered parameter and gradient
    buffer that these rules let in is used up by the end of the step.
    """
    if len(program.lanes) != job.plan.pp:
        raise ProgramError(f"the program has {len(program.lanes)} lanes and pp={job.plan.pp} needs {job.plan.pp}.")
    case = Case(program, job)
    for rule in (_wellformed, *RULES):
        for pp_rank, position, wrong in rule(case):
            lane = program.lanes[pp_rank]
            where = lane[position] if position < len(lane) else "the end"
            picture = grid(program, (pp_rank, position))
            raise ProgramError(f"pipeline {pp_rank}, at {where!s}: {wrong}\n{picture}")


def _wellformed(case: Case) -> Iterator[Complaint]:
    """Every action has all it takes, and names things that exist; its kind does, or there would be no program."""
    for pp_rank, i, a in case.program:
        if a.kind.acts_on == "unit":
            yield from ((pp_rank, i, wrong) for wrong in _misplaced_unit(case, pp_rank, a))
        elif a.kind.acts_on == "message":
            yield from ((pp_rank, i, wrong) for wrong in _misplaced_message(case, pp_rank, a))
        elif a.kind.acts_on == "bucket":
            yield from ((pp_rank, i, wrong) for wrong in _misplaced_bucket(case, pp_rank, a))


def _misplaced_unit(case: Case, pp_rank: int, a: Action) -> Iterator[str]:
    stage = case.stage_of.get(a.unit)
    if stage is None:
        yield f"this model has no unit {told(a.unit)}."
    elif case.pp_rank_of[stage] != pp_rank:
        yield f"{a.unit} lives on pipeline {case.pp_rank_of[stage]}."
    elif a.stage != stage:
        yield f"{a.unit} belongs to stage{stage}: write stage{stage}."
    elif kind_of(a.unit).source and a.kind in (Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT):
        yield f"the {a.unit} has no input to make a gradient for, so its backward is not split: write backward."
    yield from _bad_microbatch(case, a)


def _bad_microbatch(case: Case, a: Action) -> Iterator[str]:
    if a.microbatch is None or not 0 <= a.microbatch < case.job.plan.microbatches:
        yield f"micro-batches run from mb0 to mb{case.job.plan.microbatches - 1}."


def _misplaced_message(case: Case, pp_rank: int, a: Action) -> Iterator[str]:
    last = len(case.stages) - 1
    other = None if a.stage is None else a.stage + (1 if a.kind in (Kind.SEND_ACT, Kind.RECV_GRAD) else -1)
    if a.stage is None or other is None or not 0 <= a.stage <= last:
        yield f"a message names the stage it leaves or reaches: write stage0 to stage{last}."
    elif case.pp_rank_of[a.stage] != pp_rank:
        yield f"stage{a.stage} lives on pipeline {case.pp_rank_of[a.stage]}."
    elif not 0 <= other <= last:
        yield f"stage{a.stage} has no neighbour on that side: the stages are stage0 to stage{last}."
    elif case.pp_rank_of[other] == pp_rank:
        yield f"stage{other} is on the same rank, which needs no message."
    elif a.peer != case.pp_rank_of[other]:
        arrow = "->" if a.kind.sends else "<-"
        yield f"stage{other} lives on pipeline {case.pp_rank_of[other]}: write {arrow}pp{case.pp_rank_of[other]}."
    yield from _bad_microbatch(case, a)


def _misplaced_bucket(case: Case, pp_rank: int, a: Action) -> Iterator[str]:
    if a.unit not in case.buckets[pp_rank]:
        yield f"pipeline {pp_rank} has no bucket {told(a.unit)}: it has {', '.join(case.buckets[pp_rank])}."
    if a.kind is Kind.RELEASE and case.zero != 3:
        yield f"only ZeRO-3 releases parameters, and here ranks keep them (ZeRO-{case.zero})."
    if a.kind is Kind.GATHER and not case.zero:
        yield "nothing is sharded here, so there is nothing to gather: that takes dp=2 or more and zero=1 or more."
    elif a.kind is Kind.GATHER and (a.axis, a.op) != (sharding_axis(), "all_gather"):
        yield f"parameters are gathered by all_gather over {sharding_axis()}: write all_gather @{sharding_axis()}."
    summed = (*dividing("batch"), *dividing("tensors"), "tie")
    if a.kind in (Kind.REDUCE, Kind.WAIT) and a.axis not in summed:
        *others, last = (f"@{axis}" for axis in summed)
        yield f"it must name the axis of a reduction: write {', '.join(others)} or {last}."


def grid(program: Program, mark: Mark | None = None, width: int | None = None) -> str:
    """The rank × time picture of a program at unit costs, no wider than `width` characters (default: the terminal).

    The marked action has a `*` in its cell; an action that takes no time is marked in the cell it comes before.
    """
    walk = dry_run(program)
    rows = [["."] * int(walk.makespan) for _ in program.lanes]
    for span in walk.spans:
        for t in range(int(span.start), int(span.end)):
            rows[span.pp_rank][t] = f"{span.action.kind.letter}{span.action.microbatch}"
    at = None
    if mark and mark[0] < len(rows):
        at = _column(walk, mark)
        for row in rows:
            row += [""] * (at + 1 - len(row))
        rows[mark[0]][at] = "*" + rows[mark[0]][at].strip(".")
    return _drawn(rows, mark[0] if mark else None, at, width or shutil.get_terminal_size((100, 24)).columns)


def _column(walk: DryRun, mark: Mark) -> int:
    """When the marked action starts; where its pipeline rank stands still if it never does."""
    mine = [span for span in walk.spans if span.pp_rank == mark[0]]
    return int(next((s.start for s in mine if s.position == mark[1]), max((s.end for s in mine), default=0)))


def _drawn(rows: list[list[str]], marked: int | None, at: int | None, width: int) -> str:
    """The rows as lines; where they are too long a stretch of time that holds column `at`, its cut ends as '…'."""
    heads = [f"pipeline {pp_rank}:" for pp_rank in range(len(rows))]
    size = max((len(cell) for row in rows for cell in row), default=1) + 1
    head = max(map(len, heads), default=0)
    total = max(map(len, rows), default=0)
    fit = max(1, (width - head - (len(_HERE) if marked is not None else 0) - 2 * (len(_CUT) + 1)) // size)
    first = 0 if total <= fit or at is None or at < fit else min(at - fit // 2, total - fit)
    lines = []
    for pp_rank, row in enumerate(rows):
        cells = "".join(f"{cell:>{size}}" for cell in row[first : first + fit])
        before, after = f" {_CUT}" if first else "", f" {_CUT}" if first + fit < total else ""
        lines.append(f"{heads[pp_rank]:<{head}}{before}{cells}{after}{_HERE if pp_rank == marked else ''}")
    return "\n".join(line.rstrip() for line in lines)
