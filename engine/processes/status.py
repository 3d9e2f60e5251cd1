"""What every member is doing, in memory that the supervisor can read at any moment.

A rank that hangs, is stopped or has just died cannot be asked what it was doing. So each member keeps a short note in
memory shared with its supervisor: a phase, a progress counter, the text of its current action and the CPU time it has
used. Writing the note costs well under a microsecond, reading it needs no cooperation.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum


class Phase(IntEnum):
    STARTING = 0
    COMPUTING = 1
    WAITING = 2  # inside a communication call: the reason to stand still may lie with another member
    WRITING = 3
    DONE = 4
    AWAITING = 5  # until another group is done: no reason to worry while that one works


MAX_TEXT = 100  # bytes of UTF-8 kept of an action's text
_SLOT_BYTES = 128  # two cache lines, so members do not slow each other down
_NOTE = struct.Struct(f"=QB{MAX_TEXT + 1}p")  # counter, phase, text ("p": one length byte, then the bytes)
_COUNTER_PHASE = struct.Struct("=QB")
_CPU = struct.Struct("=d")
_CPU_AT = 112

_COMPUTING, _WAITING, _WRITING, _DONE, _AWAITING = (int(p) for p in list(Phase)[1:])


@dataclass(frozen=True, slots=True)
class Note:
    """One member's state as the supervisor reads it. `cpu_seconds` is as old as the member's last heartbeat."""

    counter: int
    phase: Phase
    action: str
    cpu_seconds: float


class StatusSlot:
    """The writing end, one per member. Every call counts as progress. Only one thread may call the notes."""

    def __init__(self, memory: mmap.mmap, index: int) -> None:
        self._memory = memory
        self._at = index * _SLOT_BYTES
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

    def cpu(self, seconds: float) -> None:
        """The heartbeat: CPU seconds this process has used. Safe from another thread: it has bytes of its own."""
        _CPU.pack_into(self._memory, self._at + _CPU_AT, seconds)

    def _phase(self, phase: int) -> None:
        self._counter += 1
        _COUNTER_PHASE.pack_into(self._memory, self._at, self._counter, phase)


class StatusBoard:
    """The shared memory with one slot per member. Make it before the fork; it goes with the last process."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, max(1, size) * _SLOT_BYTES)

    def slot(self, index: int) -> StatusSlot:
        return StatusSlot(self._memory, index)

    def read(self, index: int) -> Note:
        at = index * _SLOT_BYTES
        counter, phase, text = _NOTE.unpack_from(self._memory, at)
        (cpu,) = _CPU.unpack_from(self._memory, at + _CPU_AT)
        return Note(counter, Phase(phase), text.decode("utf-8", errors="ignore") or "starting", cpu)

    def phase(self, index: int) -> Phase:
        return Phase(_COUNTER_PHASE.unpack_from(self._memory, index * _SLOT_BYTES)[1])

    def counter(self, index: int) -> int:
        """The counter alone: what the supervisor compares ten times a second."""
        counter: int = _COUNTER_PHASE.unpack_from(self._memory, index * _SLOT_BYTES)[0]
        return counter
