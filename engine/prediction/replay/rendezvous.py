"""Which rows of different ranks are one communication: the members of a collective, the two ends of a message."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.prediction.replay.rows import Mask, Numbers, StepRows
from engine.program.kinds import Kind

_ACT = (Kind.SEND_ACT.name, Kind.RECV_ACT.name)


@dataclass(frozen=True, eq=False)
class Meetings:
    """Communication numbered from 0; a meeting begins when all its members are there.

    of_row: the meeting each row takes part in, -1 for none. previous: the meeting that has to be over before this one
    can begin, as far as the row's rank knows: the one before on its stream or, for a message, the one before of the
    same kind from the same source to the same destination; -1 for none.
    rows, begins: the members of meeting k are `rows[begins[k]:begins[k + 1]]`, by rank.
    """

    of_row: Numbers
    previous: Numbers
    rows: Numbers
    begins: Numbers

    def __len__(self) -> int:
        return len(self.begins) - 1

    @property
    def first(self) -> Numbers:
        """The member row of the lowest rank, for each meeting."""
        return self.rows[self.begins[:-1]]

    def members(self, meeting: int) -> list[int]:
        found: list[int] = self.rows[self.begins[meeting] : self.begins[meeting + 1]].tolist()
        return found


def meetings(rows: StepRows) -> Meetings:
    """Collectives are matched by their order on a stream and group, messages by stage and micro-batch.

    Raises `ValueError` naming a row whose partner was not recorded.
    """
    of_row, previous = np.full(len(rows), -1), np.full(len(rows), -1)
    together = np.flatnonzero(rows.is_collective)
    found = 0
    if len(together):
        found = _number(rows, together, *_collective_keys(rows, together), of_row, 0)
        stream, words = rows.codes("stream")
        previous[together] = _before(rows.rank[together] * len(words) + stream[together], of_row[together])
    messages = np.flatnonzero(rows.is_message)
    if len(messages):
        lane, key = _message_keys(rows, messages)
        count = _number(rows, messages, key, np.full(len(messages), 2), of_row, found)
        sends = rows.is_send[messages]
        earlier = np.full(count, -1)
        earlier[of_row[messages[sends]]] = _before(lane[sends], of_row[messages[sends]])
        previous[messages] = earlier[of_row[messages]]
    taking_part = np.flatnonzero(of_row >= 0)
    ordered = taking_part[np.argsort(of_row[taking_part], kind="stable")]
    begins = np.searchsorted(of_row[ordered], np.arange(int(of_row.max(initial=-1)) + 2))
    return Meetings(of_row, previous, ordered, begins)


def _collective_keys(rows: StepRows, these: Numbers) -> tuple[Numbers, Numbers]:
    """For each collective row a number that its meeting has alone, and how many recorded members that has."""
    group, sizes = _groups(rows)
    stream, words = rows.codes("stream")
    joined = group[these] * len(words) + stream[these]
    mine = rows.rank[these] * (int(joined.max()) + 1) + joined
    order = np.argsort(mine, kind="stable")
    here = np.arange(len(order))
    began = np.maximum.accumulate(np.where(np.diff(mine[order], prepend=-1) != 0, here, 0))
    occurrence = np.empty(len(order), np.int64)
    occurrence[order] = here - began
    return joined * (len(these) + 1) + occurrence, sizes[group[these]]


def _groups(rows: StepRows) -> tuple[Numbers, Numbers]:
    """(number of the group of each row, members recorded of each group).

    Where ranks stand for others, groups of the same recorded ranks are one.
    """
    numbers: dict[tuple[int, ...], int] = {}
    group = np.full(len(rows), -1)
    for _, example, these in rows.alike:
        recorded = np.unique(rows.recorded_as[list(rows.peers_of(example))])
        group[these] = numbers.setdefault(tuple(recorded.tolist()), len(numbers))
    return group, np.array([len(members) for members in numbers])


def _message_keys(rows: StepRows, these: Numbers) -> tuple[Numbers, Numbers]:
    """For each message row: a number for its kind, source and destination, and one for the very message."""
    values, begins = rows.flat_peers
    rank = rows.rank[these]
    a, b = values[begins[these]], values[begins[these] + 1]
    other = rows.recorded_as[np.where(a == rank, b, a)]
    sends, up = rows.is_send[these], rows.among("kind", *_ACT)[these]
    world = len(rows.recorded_as)
    lane = (up * world + np.where(sends, rank, other)) * world + np.where(sends, other, rank)
    stage = rows.ints("stage")[these] + np.where(sends, 0, np.where(up, -1, 1)) + 2  # of the sender
    micro = rows.ints("microbatch")[these] + 1
    return lane, (lane * (int(stage.max()) + 1) + stage) * (int(micro.max()) + 1) + micro


def _number(rows: StepRows, these: Numbers, key: Numbers, wanted: Numbers, of_row: Numbers, origin: int) -> int:
    """Gives every meeting a number from `origin` on; returns the first one left."""
    _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
    alone: Mask = counts[inverse] != wanted
    if alone.any():
        _refuse(rows, int(these[alone][0]), these[inverse == inverse[alone][0]])
    of_row[these] = origin + inverse
    return origin + len(counts)


def _refuse(rows: StepRows, row: int, present: Numbers) -> None:
    peers = rows.recorded_as[list(rows.peers_of(row))]
    missing = sorted(set(peers.tolist()) - set(rows.rank[present].tolist())) or sorted(set(peers.tolist()))
    raise ValueError(
        f"{rows.name[row]} on rank {rows.rank[row]} waits for rank {missing[0]}, which never takes part in it: "
        "replay a step that every rank completed."
    )


def _before(stream: Numbers, meeting: Numbers) -> Numbers:
    """For each row, in the order of rows, the meeting of the row before on the same stream; -1 for the first."""
    order = np.argsort(stream, kind="stable")
    earlier = np.empty(len(order), np.int64)
    follows = np.diff(stream[order], prepend=-1) == 0
    earlier[order] = np.where(follows, np.roll(meeting[order], 1), -1)
    return earlier
