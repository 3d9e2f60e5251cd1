"""The file that a run's status board may be kept in: a line of JSON with the members' names, then a slot for each.

Members write into the file through shared memory, so a note costs no system call. Those who follow the run read it as
any file: the kernel shows them the same pages. They do not map it, since a mapped file that somebody cuts short ends
its reader by SIGBUS.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from engine.plain_file import open_plain
from engine.whole_file import whole_file

SLOT_BYTES = 128  # two cache lines, so members do not slow each other down
_VERSION = 1  # of the slots' layout
_LONGEST_HEAD = 2**20
_LOOKS = 8  # at a slot that is being written; two looks that agree are enough


def map_board(names: Sequence[str], path: Path | None) -> tuple[mmap.mmap, int]:
    """Shared memory, zero but for its head, and where in it the first slot is. In the file `path`, if it can be."""
    head = _head(names)
    size = len(head) + max(1, len(names)) * SLOT_BYTES
    if path is not None:
        with suppress(OSError):
            return _mapped_file(path, head, size), len(head)
    return mmap.mmap(-1, size), len(head)


def _head(names: Sequence[str]) -> bytes:
    line = json.dumps({"version": _VERSION, "members": list(names)}).encode()
    return line.ljust(_slots_at(len(line) + 1) - 1) + b"\n"


def _slots_at(length: int) -> int:
    return -(-length // SLOT_BYTES) * SLOT_BYTES


def _mapped_file(path: Path, head: bytes, size: int) -> mmap.mmap:
    """The file appears under its name when it is whole. Raises `OSError`."""
    with whole_file(path) as draft:
        with draft.open("x+b") as file:
            _take_room(file.fileno(), size)
            memory = mmap.mmap(file.fileno(), size)
        memory[: len(head)] = head
    return memory


def _take_room(fd: int, size: int) -> None:
    """All of it at once: a note written into a hole that a full disk has no block for would end the member."""
    if sys.platform == "linux":
        os.posix_fallocate(fd, 0, size)
    else:
        os.write(fd, bytes(size))


def read_slots(path: Path) -> list[tuple[str, bytes]]:
    """(name, slot) of each member. Raises `OSError`, or `ValueError` for what is no such file."""
    with open_plain(path) as file:
        line = file.readline(_LONGEST_HEAD)
        try:
            found = json.loads(line)
            version, names = found["version"], [str(name) for name in found["members"]]
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path} is not the status of a run.") from None
        slots = [_steady(file.fileno(), _slots_at(len(line)) + i * SLOT_BYTES) for i in range(len(names))]
    if version != _VERSION or any(len(slot) < SLOT_BYTES for slot in slots):
        raise ValueError(f"{path} is cut short, or of another version.")
    return list(zip(names, slots, strict=True))


def _steady(fd: int, at: int) -> bytes:
    """A slot as it was between two notes, not half of each."""
    slot = os.pread(fd, SLOT_BYTES, at)
    for _ in range(_LOOKS):
        before, slot = slot, os.pread(fd, SLOT_BYTES, at)
        if slot == before:
            break
    return slot
