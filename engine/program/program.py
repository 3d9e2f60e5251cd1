"""A training step as data: one list of actions for each pipeline rank.

A plan is compiled to a `Program` (see `engine.program.compile`), which can be printed, compared, checked, run and
timed. A *lane* is the list of actions of one pipeline rank. All ranks at the same place along `pp`, whose number is
`pp_rank` throughout the code, run the same lane.

An action that starts communication only starts it. Whoever needs the result waits: a forward waits for its
message and its gathered parameters, the optimizer step for every reduction. `WAIT` makes a wait explicit, and so
turns overlap off.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.job.errors import Unknown, told
from engine.model.unit_kinds import is_unit
from engine.program.kinds import KINDS, Kind


def boundary(message: Action) -> int:
    """Which boundary between stages a message crosses: that behind the stage of this number."""
    assert message.stage is not None, message
    return message.stage if message.kind in (Kind.SEND_ACT, Kind.RECV_GRAD) else message.stage - 1


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a rank does.

    unit: the layer it acts on ("embedding", "block3", "head"); for GATHER, REDUCE and RELEASE the bucket, which is
    named after its first and last unit ("block2..block3"). Empty where a stage acts as a whole.
    stage: virtual stage, counted along the model. peer: pipeline rank of the other end of a message.
    axis: mesh axis of a collective. op: which collective.
    """

    kind: Kind
    unit: str = ""
    microbatch: int | None = None
    stage: int | None = None
    peer: int | None = None
    axis: str = ""
    op: str = ""

    def __str__(self) -> str:
        words = [self.kind.name]
        words += [self.unit] if self.unit else []
        words += [f"mb{self.microbatch}"] if self.microbatch is not None else []
        words += [f"stage{self.stage}"] if self.stage is not None else []
        if self.peer is not None:
            words.append(f"->pp{self.peer}" if self.kind.sends else f"<-pp{self.peer}")
        words += [self.op] if self.op else []
        words += [f"@{self.axis}"] if self.axis else []
        return " ".join(words)

    @classmethod
    def parse(cls, line: str) -> Action:
        """Reads what `str` wrote. Raises `ValueError` naming the word that cannot be read, `Unknown` for a kind."""
        kind, *words = line.split()
        values: dict[str, Any] = {}  # _field gives each name its own type
        for word in words:
            found = _field(word, line)
            if values.keys() & found.keys():
                raise ValueError(f"{told(word)} in {told(line)} is one too many: an action has one of each.")
            values |= found
        return cls(KINDS[kind], **values)


_OPS = ("all_reduce", "reduce_scatter", "all_gather")


def _field(word: str, line: str) -> dict[str, object]:
    if match := re.fullmatch(r"(mb|stage|->pp|<-pp)(\d+)", word):
        name = {"mb": "microbatch", "stage": "stage"}.get(match[1], "peer")
        return {name: int(match[2])}
    if word.startswith("@"):
        return {"axis": word[1:]}
    if word in _OPS:
        return {"op": word}
    if all(is_unit(part) for part in word.split("..", 1)):
        return {"unit": word}
    raise ValueError(
        f"cannot read {told(word)} in {told(line)}: expected a unit, mbN, stageN, ->ppN, <-ppN, {_OPS} or @axis."
    )


Lanes = tuple[tuple[Action, ...], ...]


@dataclass(frozen=True)
class Program:
    """The actions of one step. `lanes[pp_rank]` is run by every rank of that pipeline rank."""

    lanes: Lanes

    def __post_init__(self) -> None:
        for kind in {action.kind for lane in self.lanes for action in lane}:
            KINDS[kind.name]  # raises `Unknown`: nobody is told of it later

    def text(self, pp_rank: int | None = None) -> str:
        """The program to read or edit: a heading for each lane (or that of `pp_rank` alone), then an action a line."""
        chosen = range(len(self.lanes)) if pp_rank is None else [pp_rank]
        lines = (line for z in chosen for line in (f"pipeline {z}:", *(f"  {a}" for a in self.lanes[z])))
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str) -> Program:
        """The inverse of `text`; blank lines and `#` comments are skipped.

        Raises `ValueError` with the line, of a kind of action that there is not `Unknown`.
        """
        lanes: list[list[Action]] = []
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.split("#")[0].strip()
            if re.fullmatch(r"pipeline \d+:", line):
                if line != f"pipeline {len(lanes)}:":
                    raise ValueError(f"line {number}: expected 'pipeline {len(lanes)}:' here, found {told(line)}.")
                lanes.append([])
            elif line and not lanes:
                raise ValueError(f"line {number}: expected 'pipeline 0:' before the first action, found {told(line)}.")
            elif line:
                try:
                    lanes[-1].append(Action.parse(line))
                except Unknown as error:
                    error.args = (f"line {number}: {error}",)
                    raise
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from None
        return cls(tuple(map(tuple, lanes)))

    def diff(self, other: Program) -> str:
        """What `other` adds (+) and drops (-), with a line of context around each change: "what did ZeRO-3 add?"."""
        ours, theirs = self.text().splitlines(), other.text().splitlines()
        matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)  # no line is junk because it is common
        out: list[str] = []
        for changes in matcher.get_grouped_opcodes(n=1):
            lane = next((line for line in ours[changes[0][1] :: -1] if line.startswith("pipeline")), "pipeline 0:")
            out.append(f"@@ {lane.rstrip(':')}, from line {changes[0][1] + 1}")
            for tag, a, b, c, d in changes:
                out += [f"  {line}" for line in ours[a:b]] if tag == "equal" else []
                out += [f"- {line}" for line in ours[a:b]] if tag in ("replace", "delete") else []
                out += [f"+ {line}" for line in theirs[c:d]] if tag in ("replace", "insert") else []
        return "\n".join(out)

    def __iter__(self) -> Iterator[tuple[int, int, Action]]:
        """(pipeline rank, position, action) of every action."""
        for pp_rank, lane in enumerate(self.lanes):
            for i, action in enumerate(lane):
                yield pp_rank, i, action


def lanes_of(lists: Iterable[Iterable[Action]]) -> Lanes:
    """Any lists of actions as lanes."""
    return tuple(tuple(actions) for actions in lists)


def expanded(lanes: Lanes, expand: Callable[[Action], Iterable[Action]]) -> Lanes:
    """The lanes with, in place of each action, those that `expand` makes of it."""
    return lanes_of((new for action in lane for new in expand(action)) for lane in lanes)
