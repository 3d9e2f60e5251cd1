"""Entry of the `lab` command: an interrupt is answered in words from the very beginning, imports included."""

from __future__ import annotations

import sys

FAILED, INTERRUPTED = 1, 130


def main() -> int:
    """The exit code. Catches Ctrl-C from the first import on, so that the parser is imported here."""
    try:
        from lab.cli.streams import closed_streams, open_streams

        open_streams()
        from lab.cli.parser import main as run
    except KeyboardInterrupt:
        print("lab: stopped.", file=sys.stderr)
        return INTERRUPTED
    return closed_streams(run(), FAILED)
