"""Reading the files of others: of a run, a job, a cluster, a text. One way for all, which no file can hang or fill.

A store may come from anywhere. A FIFO in it would be waited for forever, a link to /dev/zero read to the end of memory:
so only regular files are opened, and no more is read than such a file can hold.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

WRITTEN = 2**20
"""Bytes, at most, of what people write: a job, a cluster, notes."""
RECORD = 2**24
"""Of what a run says of itself: `run.json`, what its queue knows of it."""
GROWN = 2**28
"""Of what grows with a run: its program, its summary."""
LINE = 2**28
"""Of a line that a rank writes after a step."""

_MARKS = {  # the longest first: that of UTF-32 begins as that of UTF-16 does
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class NotPlain(OSError):
    """A file that is there but is not read: its words stand in `strerror`, as those of the system do."""

    def __init__(self, path: Path, words: str) -> None:
        super().__init__(errno.EINVAL, words, str(path))


def open_plain(path: Path) -> BufferedReader:
    """A regular file, or what a link to one leads to, open for reading bytes. Raises `OSError` for anything else."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        kind = os.fstat(fd).st_mode
        if not stat.S_ISREG(kind):
            raise NotPlain(path, "it is a folder" if stat.S_ISDIR(kind) else "it is not a regular file")
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def check_plain(path: Path) -> None:
    """Raises as `open_plain` does; for what others open by its name."""
    open_plain(path).close()


def read_plain(path: Path, most: int) -> bytes:
    """The content of a file. Raises `OSError` for what is not a regular file, and for more than `most` bytes."""
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise _too_long(path, most)
        found = file.read(most + 1)
    if len(found) > most:  # it grew
        raise _too_long(path, most)
    return found


def read_text(path: Path, most: int = WRITTEN) -> str:
    """The same as text: UTF-8, or what a byte-order mark says. Raises `UnicodeDecodeError`, a `ValueError`, as well."""
    return decoded(read_plain(path, most))


def decoded(content: bytes) -> str:
    """Text of a file, without the byte-order mark that editors put before it, and with plain ends of lines."""
    encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    return content.decode(encoding).replace("\r\n", "\n")


def lines_of(file: BinaryIO, most: int = LINE) -> Iterator[bytes]:
    """The lines of an open file, with their ends. Raises `ValueError` for one of more than `most` bytes."""
    while line := file.readline(most + 1):
        if len(line) > most:
            raise ValueError(f"a line of {file.name} is longer than {most:,} bytes")
        yield line


def _too_long(path: Path, most: int) -> NotPlain:
    return NotPlain(path, f"it is longer than the {most:,} bytes that such a file can have")
