"""What a job may be, said a second time: from the README, the command line's help and the papers, not from the engine.

Nothing here imports the engine, so a rule that the engine forgets or invents shows as a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Options = dict[str, Any]
Broken = Callable[[Options], bool]
Order = tuple[tuple[str, ...], ...]
"""A schedule in letters, a lane for each pipeline rank: F2c1 is the forward of micro-batch 2 through chunk 1."""


@dataclass(frozen=True)
class Rule:
    """`broken` tells whether a job breaks the rule; who breaks it hears of every knob in `knobs`, with its value."""

    knobs: tuple[str, ...]
    broken: Broken


def _rule(knobs: str, broken: Broken) -> Rule:
    return Rule(tuple(knobs.split()), broken)


ALONE = [
    *(_rule(name, lambda o, name=name: o[name] < 1)
      for name in ("layers", "hidden", "heads", "seq", "dp", "tp", "pp", "microbatches", "chunks", "bucket_kb",
                   "steps", "batch")),
    _rule("vocab", lambda o: o["vocab"] < 256),  # a token is a byte
    _rule("zero", lambda o: o["zero"] not in (0, 1, 2, 3)),
    _rule("prefetch", lambda o: o["prefetch"] < 0),
    _rule("lr", lambda o: not 0 < o["lr"] < math.inf),
    _rule("clip", lambda o: not 0 <= o["clip"] < math.inf),
    _rule("order", lambda o: set(o["order"].split("-")) != {"dp", "tp", "pp"} or o["order"].count("-") != 2),
    _rule("dropout", lambda o: o["dropout"] != 0),  # random masks prove nothing equal
    _rule("precision", lambda o: o["precision"] != "fp32"),  # only simulated
]  # fmt: skip
"""Rules on one knob. Only where none is broken do those on several mean anything."""

TOGETHER = [
    _rule("heads hidden", lambda o: o["hidden"] % o["heads"] != 0),
    _rule("tp heads", lambda o: o["heads"] % o["tp"] != 0),
    _rule("tp seq", lambda o: o["sequence_parallel"] and o["seq"] % o["tp"] != 0),
    _rule("dp microbatches batch", lambda o: o["batch"] % (o["dp"] * o["microbatches"]) != 0),
    _rule("pp chunks layers", lambda o: o["layers"] < o["pp"] * o["chunks"]),
    _rule("schedule pp", lambda o: o["pp"] == 1 and o["schedule"] in ("interleaved", "zb-h1", "zb-h2", "zb-v")),
    _rule("schedule chunks", lambda o: o["schedule"] == "interleaved" and o["chunks"] == 1),
    _rule("schedule chunks", lambda o: o["schedule"] == "zb-v" and o["chunks"] != 2),
    _rule("schedule chunks", lambda o: o["schedule"] not in ("interleaved", "zb-v") and o["chunks"] > 1),
    _rule("schedule pp microbatches", lambda o: o["schedule"] == "interleaved" and o["microbatches"] % o["pp"] != 0),
    _rule("partition", lambda o: o["partition"] is not None and len(o["partition"]) != o["pp"] * o["chunks"]),
    _rule("partition layers", lambda o: o["partition"] is not None
          and (min(o["partition"], default=0) < 1 or sum(o["partition"]) != o["layers"])),
]  # fmt: skip


def broken_rules(options: Options) -> list[Rule]:
    """The rules that a job with all its options breaks; none for one that real processes can run."""
    return [r for r in ALONE if r.broken(options)] or [r for r in TOGETHER if r.broken(options)]


def says(name: str, options: Options, message: str) -> bool:
    """Whether a refusal names a knob with the value that the user gave it."""
    value = options[name]
    written = ",".join(map(str, value)) if isinstance(value, tuple) else value
    return f"{name}={written}" in message or f"{name}={written!r}" in message


def home(schedule: str, pp: int, stage: int) -> int:
    """The pipeline rank of a stage: round and round (Narayanan et al. 2021), under ZB-V down and back up (Qi 2024)."""
    lap, place = divmod(stage, pp)
    return pp - 1 - place if schedule == "zb-v" and lap == 1 else place


Work = tuple[str, int, int]
"""Letter, stage, micro-batch."""


def before(work: Work, last: int, split: set[tuple[int, int]]) -> Iterator[Work]:
    """What must be done before a piece of work, anywhere; `split` holds the backwards that come in two parts."""
    letter, stage, k = work
    if letter == "F":
        if stage:
            yield "F", stage - 1, k
    elif letter == "W":
        yield "I", stage, k
    else:
        yield "F", stage, k
        if stage < last:
            yield ("I" if (stage + 1, k) in split else "B"), stage + 1, k


def order_trains(order: Order, schedule: str, pp: int, chunks: int) -> bool:
    """Whether each rank can work down its lane: sends wait for nobody, so all it takes is that no wait is circular."""
    held = [[s for s in range(pp * chunks) if home(schedule, pp, s) == z] for z in range(pp)]
    lanes = [[_read(word, held[z]) for word in lane] for z, lane in enumerate(order)]
    split = {(s, k) for lane in lanes for letter, s, k in lane if letter == "I"}
    done, at = set[Work](), [0] * pp
    while True:
        ready = [
            z for z, lane in enumerate(lanes)
            if at[z] < len(lane) and done.issuperset(before(lane[at[z]], pp * chunks - 1, split))
        ]  # fmt: skip
        if not ready:
            return all(at[z] == len(lane) for z, lane in enumerate(lanes))
        for z in ready:
            done.add(lanes[z][at[z]])
            at[z] += 1


def _read(word: str, held: Sequence[int]) -> Work:
    micro, _, chunk = word[1:].partition("c")
    return word[0], held[int(chunk or 0)], int(micro)
