"""What a rank has moved and held since its run began, brought up to date step by step.

It stands first in each line of the rank's live file. So whoever follows a run reads its newest lines, however much was
written before them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.recording.tables import CATEGORIES, MemoryRow, Op

_BEGINS = '{"so_far":'
_LONGEST = 4096  # bytes; it is a few hundred


class Totals(NamedTuple):
    """Of one rank, up to the end of `step`. Bytes are integers, times ns of the recording's clock.

    moved: logical bytes of its communication by axis ("dp", "tp", "pp", "tie", "world"), counted as in a ledger: a
    message counts on both its ends. before, held: by category, when the step began and at its end. peak: the most of
    each category at any time; peak_total: the most of all together. first_end_ns, end_ns: last end of the first step
    and of this one.
    """

    step: int
    moved: Mapping[str, int]
    before: Mapping[str, int]
    held: Mapping[str, int]
    peak: Mapping[str, int]
    peak_total: int
    first_end_ns: int
    end_ns: int


NOTHING = Totals(-1, {}, *(dict.fromkeys(CATEGORIES, 0),) * 3, 0, 0, 0)


def after(totals: Totals, ops: Sequence[Op], memory: Sequence[MemoryRow]) -> Totals:
    """`totals` with one more step. memory: in the order of time; rows of one instant count together."""
    moved = Counter(totals.moved)
    for op in ops:
        if op.cost.logical_bytes:
            moved[op.group] += op.cost.logical_bytes
    held, peak, most = dict(totals.held), dict(totals.peak), totals.peak_total
    for i, row in enumerate(memory):
        held[row.category] = row.bytes
        if i + 1 == len(memory) or memory[i + 1].time_ns != row.time_ns:
            most = max(most, sum(held.values()))
        peak[row.category] = max(peak[row.category], row.bytes)
    end = max(op.end_ns for op in ops)
    return Totals(ops[0].step, moved, totals.held, held, peak, most, totals.first_end_ns or end, end)


def read_totals(line: bytes) -> Totals:
    """From a line of a live file, of which it reads no more than it needs. Raises `ValueError`."""
    head = line[:_LONGEST].decode("utf-8", errors="ignore")
    if not head.startswith(_BEGINS):
        raise ValueError("the line does not begin with what was done so far.")
    try:
        return Totals(*json.JSONDecoder().raw_decode(head, len(_BEGINS))[0])
    except TypeError:
        raise ValueError("the line begins with something else than what was done so far.") from None
