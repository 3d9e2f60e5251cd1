"""Writing a file in one step, the only way here: a reader sees the old one or the new one, never half of it.

A name may lead somewhere else. A link is followed; into a device, a pipe or a socket is written, since to put a file in
its place would take it from everybody else.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NOTHING = 4096  # bytes free: a disk with less takes no file
_LONGEST = 180
"""Bytes of a name that its draft keeps; file systems take 255."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A draft, for the block to write, which then takes the place of `path`. If the block raises, it is gone.

    What is no regular file stays, and gets the draft's content. Raises `OSError`; of a folder before the block begins.
    """
    there = _state(path)
    if there is not None and (not stat.S_ISREG(there.st_mode) or _is_open_file(path)):
        with tempfile.TemporaryDirectory(prefix="shardlab-") as folder:
            yield Path(folder) / "draft"
            _pour(Path(folder) / "draft", path)
        return
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{_shortened(target.name)}.{os.getpid()}-{os.urandom(4).hex()}.part")
    try:
        with _full_disk_told(target):
            yield draft
        if there is not None:
            with suppress(OSError):  # a draft of somebody else's file; who may read it stays as it was if that can be
                draft.chmod(stat.S_IMODE(there.st_mode))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def _full_disk_told(path: Path) -> Iterator[None]:
    """Libraries that write by themselves, as torch does, tell of a full disk by errors of their own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        state = os.statvfs(path.parent)
        if state.f_bavail * state.f_frsize < _NOTHING:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
        raise


def write_whole(path: Path, text: str) -> None:
    """Raises `OSError`; then the old file, if there is one, is as it was."""
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def check_writable(path: Path) -> None:
    """Raises `OSError` where `whole_file` certainly will, for who has much to do before there is something to write."""
    _state(path)


def _state(path: Path) -> os.stat_result | None:
    """Of what the name leads to; None if there is nothing yet. Raises `OSError` for a folder."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it", str(path))
    return found


def _is_open_file(path: Path) -> bool:
    """Whether the name stands for a file that a process has open, as /dev/stdout does: its place in a folder is not
    ours to know."""
    return str(path.absolute()).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def _pour(draft: Path, path: Path) -> None:
    with draft.open("rb") as source, os.fdopen(os.open(path, os.O_WRONLY | os.O_NOCTTY), "wb") as sink:
        shutil.copyfileobj(source, sink)


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_LONGEST]) if len(os.fsencode(name)) > _LONGEST else name
