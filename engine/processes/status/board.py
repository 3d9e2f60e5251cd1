"""What every member is doing, in memory that the supervisor can read at any moment.

A rank that hangs, is stopped or has just died cannot be asked what it was doing. So each member keeps a short note in
memory shared with its supervisor: a phase, a progress counter, the text of its current action, the CPU time it has
used and the step it is in. Writing the note costs well under a microsecond, reading it needs no cooperation. The memory
may be that of a file (`engine.processes.status.file`), so that any process can follow a run.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from engine.processes.status.file import SLOT_BYTES, map_board, read_slots


class Phase(IntEnum):
    STARTING = 0
    COMPUTING = 1
    WAITING = 2  # inside a communication call: the reason to stand still may lie with another member
    WRITING = 3
    DONE = 4
    AWAITING = 5  # until another group is done: no reason to worry while that one works


MAX_TEXT = 100  # bytes of UTF-8 kept of an action's text
_NOTE = struct.Struct(f"=QB{MAX_TEXT + 1}p")  # counter, phase, text ("p": one length byte, then the bytes)
_COUNTER_PHASE = struct.Struct("=QB")
_CPU = struct.Struct("=d")
_CPU_AT = 112
_STEP = struct.Struct("=q")  # 1 + the step, so that zeroed memory says that none has begun
_STEP_AT = 120

_COMPUTING, _WAITING, _WRITING, _DONE, _AWAITING = (int(p) for p in list(Phase)[1:])


@dataclass(frozen=True, slots=True)
class Note:
    """One member's state as others read it. `cpu_seconds` is as old as the member's last heartbeat.

    step counts from 0; -1 before the first, and for a member that does not count."""

    counter: int
    phase: Phase
    action: str
    cpu_seconds: float
    step: int


class StatusSlot:
    """The writing end, one per member. Every call counts as progress. Only one thread may call the notes."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at
        self._counter = 0

    def action(self, text: bytes) -> None:
        """A new action begins; `text` (UTF-8, cut at 100 bytes) says which."""
        self._counter += 1
        _NOTE.pack_into(self._memory, self._at, self._counter, _COMPUTING, text)

    def waiting(self) -> None:
        """The member now waits in communication, still within the same action."""
        self._phase(_WAITING)

    def awaiting(self) -> None:
        """The member now waits for another group of the run to be done."""
        self._phase(_AWAITING)

    def computing(self) -> None:
        self._phase(_COMPUTING)

    def writing(self) -> None:
        """The member writes its recording to the disk."""
        self._phase(_WRITING)

    def done(self) -> None:
        self._phase(_DONE)

    def step(self, number: int) -> None:
        """Step `number`, counted from 0, begins. No progress of its own: its actions are."""
        _STEP.pack_into(self._memory, self._at + _STEP_AT, number + 1)

    def cpu(self, seconds: float) -> None:
        """The heartbeat: CPU seconds this process has used. Safe from another thread: it has bytes of its own."""
        _CPU.pack_into(self._memory, self._at + _CPU_AT, seconds)

    def _phase(self, phase: int) -> None:
        self._counter += 1
        _COUNTER_PHASE.pack_into(self._memory, self._at, self._counter, phase)


class StatusBoard:
    """The shared memory with one slot per member. Make it before the fork.

    path: a file that the memory becomes part of. Where there is no room for one, or no right to make it, the memory is
    anonymous, seen by the members and their supervisor alone, and goes with the last of them.
    """

    def __init__(self, names: Sequence[str], path: Path | None = None) -> None:
        self._memory, self._first = map_board(names, path)

    def slot(self, index: int) -> StatusSlot:
        return StatusSlot(self._memory, self._at(index))

    def read(self, index: int) -> Note:
        at = self._at(index)
        return _note(self._memory[at : at + SLOT_BYTES])

    def phase(self, index: int) -> Phase:
        return Phase(_COUNTER_PHASE.unpack_from(self._memory, self._at(index))[1])

    def counter(self, index: int) -> int:
        """The counter alone: what the supervisor compares ten times a second."""
        counter: int = _COUNTER_PHASE.unpack_from(self._memory, self._at(index))[0]
        return counter

    def _at(self, index: int) -> int:
        return self._first + index * SLOT_BYTES


def read_board(path: Path) -> list[tuple[str, Note]]:
    """(name, note) of each member, in their order, from the file of a board that another process made.

    Raises `OSError` if it cannot be read, `ValueError` if it is no such file or a damaged one.
    """
    return [(name, _note(slot)) for name, slot in read_slots(path)]


def _note(slot: bytes) -> Note:
    counter, phase, text = _NOTE.unpack_from(slot)
    (cpu,), (step,) = _CPU.unpack_from(slot, _CPU_AT), _STEP.unpack_from(slot, _STEP_AT)
    return Note(counter, Phase(phase), text.decode("utf-8", errors="ignore") or "starting", cpu, step - 1)
