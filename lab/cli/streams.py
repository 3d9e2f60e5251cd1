"""What commands print to. Whatever the terminal cannot show is replaced, and who has stopped listening is no trouble.

What a run did does not depend on who reads about it: an output that cannot be written changes no exit status of a run,
and never reaches the code that looks for damage in its files.
"""

from __future__ import annotations

import codecs
import os
import sys
import unicodedata
from io import TextIOWrapper
from typing import BinaryIO, TextIO, cast

_ERRORS = "shardlab.readable"
_SIGNS = {
    "✔": "+", "✘": "x", "×": "x", "–": "-", "—": "-", "−": "-", "…": ".", "·": ".", "→": ">", "←": "<", "÷": "/",
    "Δ": "d", "α": "a", "β": "b", "µ": "u", "≤": "<", "≥": ">", "≈": "~", "±": "~", "▶": ">", "•": "*", "’": "'",
    "│": "|", "┃": "|", "─": "-", "━": "-", "█": "#", "▌": "#", "▒": "%", "░": ":",
}  # fmt: skip
"""Signs that we print, and one that every terminal has, as wide, so that tables stay straight."""


class Output(TextIOWrapper):
    """A standard stream that raises no `OSError`: the first is kept in `lost`, and what comes after it goes nowhere."""

    lost: OSError | None = None

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.lost = self.lost or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())  # what is still in the buffers, and what other parts of the process write
        os.close(nowhere)


def open_streams() -> None:
    """Makes standard output and error ones that can always be written; to be called once, first of all.

    A closed descriptor is opened onto nothing: else the next file that is opened would get its number, and all that is
    printed.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != fd:
                os.dup2(nowhere, fd)
                os.close(nowhere)
    codecs.register_error(_ERRORS, _readable)
    sys.stdout = _output(sys.stdout, 1)
    sys.stderr = _output(sys.stderr, 2)


def closed_streams(status: int, failed: int) -> int:
    """Writes what is left; the exit status of a command that ends with `status`.

    That nobody reads to the end is fine. A full disk is told, and `failed` is the status if all else went well.
    """
    out = sys.stdout
    out.flush()
    error = out.lost if isinstance(out, Output) else None
    if error is None or isinstance(error, BrokenPipeError):
        return status
    print(f"lab: the output cannot be written: {error.strerror}.", file=sys.stderr)
    return status or failed


def _output(stream: TextIO | None, fd: int) -> Output:
    """stream: None where Python found the descriptor closed."""
    if stream is None:
        return Output(cast(BinaryIO, os.fdopen(fd, "wb")), encoding="utf-8", errors=_ERRORS)
    encoding, at_once = stream.encoding, getattr(stream, "line_buffering", False)
    return Output(stream.buffer, encoding=encoding, errors=_ERRORS, line_buffering=at_once)


def _readable(error: UnicodeError) -> tuple[str | bytes, int]:
    """A sign that can be encoded, in place of the first that cannot; the bytes of a file's name as they are."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    sign = error.object[error.start]
    if "\udc80" <= sign <= "\udcff":
        return bytes([ord(sign) - 0xDC00]), error.start + 1
    plain = _SIGNS.get(sign) or unicodedata.normalize("NFKD", sign)[0]
    return plain if plain.isascii() else "?", error.start + 1
