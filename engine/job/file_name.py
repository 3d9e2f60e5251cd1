"""Names of files inside a job, which must be text: it is written to TOML and JSON, and shown.

On Linux a file's name is bytes, and need not be UTF-8. Such a name stands in a job as a file URI (RFC 8089), which says
each byte: `file:///data/caf%E9.txt`.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes

_SCHEME = "file://"


def as_text(name: str) -> str:
    """The name as a job has it: itself, or its URI if it is not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:  # Python has put its bytes into lone surrogates
        return Path(name).absolute().as_uri()
    return name


def file_of(text: str) -> Path:
    """The file that a name in a job is of."""
    if text.startswith(f"{_SCHEME}/"):
        return Path(os.fsdecode(unquote_to_bytes(text.removeprefix(_SCHEME))))
    return Path(text)
