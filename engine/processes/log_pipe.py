"""A member's standard output and error: every line goes to the run's log, the last ones are kept for a failure."""

from __future__ import annotations

import os
from collections import deque

KEPT_LINES = 100
LONGEST_LINE = 1 << 16  # bytes; a longer one is broken


class Output:
    """The reading end of the pipe a member writes to. The log names who said what, line by line."""

    def __init__(self, pipe: int, log: int, name: str) -> None:
        os.set_blocking(pipe, False)
        self._pipe, self._log, self._tag = pipe, log, f"[{name}] ".encode()
        self._partial = b""
        self._lines: deque[bytes] = deque(maxlen=KEPT_LINES)
        self.closed = False

    def fileno(self) -> int:
        return self._pipe

    def close(self) -> None:
        os.close(self._pipe)

    def read(self) -> bool:
        """Take what is there; whether there may be more."""
        try:
            chunk = os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return False
        self.closed = not chunk
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if len(self._partial) > LONGEST_LINE:
            lines, self._partial = [*lines, self._partial], b""
        self._write(lines)
        return not self.closed

    def read_all(self) -> None:
        """The member has ended: take its last words, with or without a final newline."""
        while not self.closed and self.read():
            pass
        if self._partial:
            self._write([self._partial])
            self._partial = b""

    def tail(self) -> str:
        return b"\n".join(self._lines).decode("utf-8", errors="replace")

    def _write(self, lines: list[bytes]) -> None:
        self._lines.extend(lines)
        text = b"".join(self._tag + line + b"\n" for line in lines)
        try:
            while text:
                text = text[os.write(self._log, text) :]
        except OSError:  # a full disk must not end the run: the members will say what they could not write
            pass
