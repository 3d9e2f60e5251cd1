"""Schedules written by the user: text with a line for each pipeline rank, or a function that makes one.

    F0 F1 B0 B1        # rank 0
    F0 B0 F1 B1        # rank 1

F is a forward, B a whole backward, I and W its input and its weight part, the number a micro-batch; with several
chunks a rank, `F0c1` is that of chunk 1. Messages, units, gathers and reductions are added by the compiler's passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from engine.job.errors import told
from engine.job.job import Job
from engine.model.units import pp_rank_of_stage
from engine.program.kinds import KINDS
from engine.program.program import Action, Lanes

Written = str | Lanes | Callable[[int, int, int], "str | Lanes"]
_FORM = "a schedule is text with a line for each rank, or lanes of actions"
_WORD = re.compile(r"([A-Z])(\d+)(?:c(\d+))?")


def written_lanes(job: Job, written: Written) -> Lanes:
    """The stage-level order that `written` says, a lane for each pipeline rank.

    written: text, lanes of stage-level actions, or a function (pipeline ranks p, micro-batches m, chunks v) → one of
    the two. Raises `ValueError` with the line and the word that cannot be read, or for a wrong number of ranks.
    """
    plan = job.plan
    if callable(written):
        written = written(plan.pp, plan.microbatches, plan.chunks)
    lanes = _parsed(job, written) if isinstance(written, str) else _checked(job, written)
    if len(lanes) != plan.pp:
        raise ValueError(f"the schedule has {len(lanes)} ranks and pp={plan.pp}: write {plan.pp} lines, one a rank.")
    return lanes


def written_text(job: Job, lanes: Lanes) -> str:
    """The inverse of reading: a stage-level order in letters, to print or to edit."""
    several = job.plan.chunks > 1

    def word(pp_rank: int, a: Action) -> str:
        chunk = f"c{_stages_of(job, pp_rank).index(a.stage)}" if several and a.stage is not None else ""
        return f"{a.kind.letter}{a.microbatch}{chunk}"

    return "".join(" ".join(word(pp_rank, a) for a in lane) + "\n" for pp_rank, lane in enumerate(lanes))


def _parsed(job: Job, text: str) -> Lanes:
    lines = [(number, raw.split("#")[0].split()) for number, raw in enumerate(text.splitlines(), 1)]
    filled = [(number, words) for number, words in lines if words]
    most = 3 * job.plan.microbatches * job.plan.chunks  # F, I and W of each; told before a long text is read
    for number, words in filled:
        if len(words) > most:
            raise ValueError(
                f"line {number}: {len(words):,} actions, and a rank has at most {most}: F, I and W of each."
            )
    return tuple(tuple(_action(job, pp_rank, n, word) for word in words) for pp_rank, (n, words) in enumerate(filled))


def _action(job: Job, pp_rank: int, line: int, word: str) -> Action:
    match = _WORD.fullmatch(word)
    kinds = {kind.letter: kind for kind in KINDS if kind.is_pass}
    if match is None or match[1] not in kinds:
        raise ValueError(f"line {line}: cannot read {told(word)}: write F0, B0, I0 or W0, with a chunk as in F0c1.")
    chunk = int(match[3] or 0)
    if chunk >= job.plan.chunks:
        most = job.plan.chunks - 1
        raise ValueError(f"line {line}: {told(word)} is of chunk {chunk} and chunks={most + 1}: write c0{_to(most)}.")
    stage = _stages_of(job, pp_rank % job.plan.pp)[chunk]  # a line too many is counted later
    return Action(kinds[match[1]], microbatch=int(match[2]), stage=stage)


def _to(most: int) -> str:
    return f" to c{most}" if most else " or no chunk"


def _stages_of(job: Job, pp_rank: int) -> list[int]:
    """The stages of a rank: its chunks, first to last along the model."""
    return [s for s in range(job.plan.pp * job.plan.chunks) if pp_rank_of_stage(job.plan, s) == pp_rank]


def _rows(lanes: Any) -> bool:
    return isinstance(lanes, (list, tuple)) and all(isinstance(lane, (list, tuple)) for lane in lanes)


def _checked(job: Job, lanes: Sequence[Sequence[Action]]) -> Lanes:
    """Lanes made by hand; messages and the like are for the compiler to add."""
    if not _rows(lanes):
        raise ValueError(f"{_FORM}, and this is a {type(lanes).__name__}.")
    for pp_rank, lane in enumerate(lanes):
        mine = _stages_of(job, pp_rank)
        for a in lane:
            if not isinstance(a, Action):
                raise ValueError(f"{_FORM}, and rank {pp_rank} holds a {type(a).__name__}.")
            if not a.kind.is_pass or a.unit or a.microbatch is None:
                raise ValueError(
                    f"rank {pp_rank}: {a} is not of a schedule: write forwards and backwards of whole stages."
                )
            if a.stage not in mine and pp_rank < job.plan.pp:
                here = ", ".join(map(str, mine))
                raise ValueError(f"rank {pp_rank}: {a} is not of this rank: its stages are {here}.")
    return tuple(map(tuple, lanes))
