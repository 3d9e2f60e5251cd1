"""Is a program right? Every layer once per micro-batch, messages matched, parameters present, no deadlock.

A program may be written by hand, so a refusal shows the rank × time grid with the offending action marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from engine.compile import compile_job
from engine.dryrun import dry_run
from engine.job import Job
from engine.program import RECEIVES, SENDS, Action, Kind, Program
from engine.units import compute_units, needs, stages

_LETTER = {Kind.FORWARD: "F", Kind.BACKWARD: "B", Kind.BACKWARD_INPUT: "I", Kind.BACKWARD_WEIGHT: "W"}
Complaint = tuple[int, int, str]  # lane, position, what is wrong


class ProgramError(ValueError):
    """The program would not train this job. The message says which action and why, and shows the grid."""


def check_program(program: Program, job: Job) -> None:
    """Raises `ProgramError` with the first fault found."""
    if len(program.lanes) != job.plan.pp:
        raise ProgramError(f"the program has {len(program.lanes)} lanes and pp={job.plan.pp} needs {job.plan.pp}.")
    for rule in (_coverage, _order, _messages, _deadlock, _parameters, _reductions):
        for lane, position, wrong in rule(program, job):
            where = program.lanes[lane][position] if position < len(program.lanes[lane]) else "the end"
            raise ProgramError(f"pipeline {lane}, at {where!s}: {wrong}\n{grid(program, (lane, position))}")


def _coverage(program: Program, job: Job) -> Iterator[Complaint]:
    """Each unit forward and backward exactly once per micro-batch, on the rank that holds it."""
    home = {unit: s % job.plan.pp for s, units in enumerate(stages(job)) for unit in units}
    seen: Counter[tuple[Kind, str, int | None]] = Counter()
    for z, i, a in program:
        if a.kind not in (Kind.FORWARD, Kind.BACKWARD):
            continue
        if a.unit not in home:
            yield z, i, f"this model has no unit {a.unit!r}."
        if home[a.unit] != z:
            yield z, i, f"{a.unit} lives on pipeline {home[a.unit]}."
        if a.microbatch is None or not 0 <= a.microbatch < job.plan.microbatches:
            yield z, i, f"micro-batches run from mb0 to mb{job.plan.microbatches - 1}."
        seen[a.kind, a.unit, a.microbatch] += 1
        if seen[a.kind, a.unit, a.microbatch] > 1:
            yield z, i, "this has been done already; each layer runs once per micro-batch."
    for unit in compute_units(job.model):
        for k in range(job.plan.microbatches):
            for kind in (Kind.FORWARD, Kind.BACKWARD):
                if not seen[kind, unit, k]:
                    lane = home[unit]
                    yield lane, len(program.lanes[lane]), f"{kind} {unit} mb{k} is missing."
    for z, lane_ in enumerate(program.lanes):
        if sum(a.kind is Kind.STEP for a in lane_) != 1:
            yield z, len(lane_), "a lane has exactly one step."


def _order(program: Program, job: Job) -> Iterator[Complaint]:
    """Within a lane a unit follows its predecessor, and its backward follows its forward."""
    before = {b: a for units in stages(job) for a, b in pairwise(units)}
    after = {a: b for b, a in before.items()}
    for z, lane in enumerate(program.lanes):
        done: set[tuple[Kind, str, int | None]] = set()
        for i, a in enumerate(lane):
            if a.kind not in (Kind.FORWARD, Kind.BACKWARD):
                continue
            for kind, unit in _predecessors(a, before, after):
                if (kind, unit, a.microbatch) not in done:
                    yield z, i, f"it needs {kind} {unit} mb{a.microbatch} first."
            done.add((a.kind, a.unit, a.microbatch))


def _predecessors(a: Action, before: dict[str, str], after: dict[str, str]) -> Iterator[tuple[Kind, str]]:
    """What must have run earlier on the same rank; before and after: each unit's neighbours within its stage."""
    if a.kind is Kind.BACKWARD:
        yield Kind.FORWARD, a.unit
        if a.unit in after:
            yield Kind.BACKWARD, after[a.unit]
    elif a.unit in before:
        yield Kind.FORWARD, before[a.unit]


def _messages(program: Program, job: Job) -> Iterator[Complaint]:
    """Every send has its receive and every receive its send."""
    sends: dict[tuple[object, ...], tuple[int, int]] = {
        (a.kind, a.stage, a.microbatch, z, a.peer): (z, i) for z, i, a in program if a.kind in SENDS
    }
    for z, i, a in program:
        if a.kind in RECEIVES and a.stage is not None:
            source = a.stage + (-1 if a.kind is Kind.RECV_ACT else 1)
            if sends.pop((RECEIVES[a.kind], source, a.microbatch, a.peer, z), None) is None:
                yield z, i, f"pipeline {a.peer} never sends it."
    for z, i in sends.values():
        yield z, i, "nobody receives it."


def _deadlock(program: Program, job: Job) -> Iterator[Complaint]:
    for stuck in dry_run(program).stuck:
        yield stuck.lane, stuck.position, f"it waits for ever for {stuck.needs}."


def _parameters(program: Program, job: Job) -> Iterator[Complaint]:
    """Under ZeRO-3 a unit computes only between the gather and the release of what it needs."""
    if job.effective_zero != 3:
        return
    for z, lane in enumerate(program.lanes):
        present: set[str] = set()
        for i, a in enumerate(lane):
            if a.kind is Kind.GATHER:
                present.add(a.unit)
            elif a.kind is Kind.RELEASE:
                present.discard(a.unit)
            elif a.kind in (Kind.FORWARD, Kind.BACKWARD):
                for name in needs(job.model, a.unit):
                    if name not in present:
                        yield z, i, f"the parameters of {name} are not gathered."


def _reductions(program: Program, job: Job) -> Iterator[Complaint]:
    """Every gradient is reduced as often as in the compiled program and before the step."""
    compiled = compile_job(job)
    for z, lane in enumerate(program.lanes):
        step = next(i for i, a in enumerate(lane) if a.kind is Kind.STEP)
        wanted = Counter((a.unit, a.microbatch, a.axis) for a in compiled.lanes[z] if a.kind is Kind.REDUCE)
        found = Counter((a.unit, a.microbatch, a.axis) for a in lane[:step] if a.kind is Kind.REDUCE)
        for (unit, k, axis), count in (wanted - found).items():
            which = f"{unit} mb{k}" if k is not None else unit
            yield (
                z,
                step,
                f"the gradients of {which} are not reduced over {axis} ({count} missing) before the step.",
            )


def grid(program: Program, mark: tuple[int, int] | None = None, width: int = 100) -> str:
    """The rank × time picture of a program at unit costs; `mark` = (lane, position) of the action in question."""
    walk = dry_run(program)
    rows = [[" ."] * walk.makespan for _ in program.lanes]
    for span in walk.spans:
        if span.action.kind in _LETTER:
            for t in range(span.start, span.end):
                rows[span.lane][t] = f"{_LETTER[span.action.kind]}{span.action.microbatch}"
    lines = [f"pipeline {z}: " + " ".join(f"{cell:>3}" for cell in row[:width]) for z, row in enumerate(rows)]
    if mark and mark[0] < len(program.lanes):
        z, position = mark
        lane = program.lanes[z]
        lines[z] += f"   <-- here: {lane[position] if position < len(lane) else 'the end of the lane'}"
    return "\n".join(lines)
