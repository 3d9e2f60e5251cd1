"""What the browser is opened with, without telling the token to others on this machine."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import escape
from pathlib import Path


@contextmanager
def for_browser(url: str, folder: Path, port: int) -> Iterator[str]:
    """An address that leads to `url`, which holds a token, and does not hold it itself.

    Everybody on a machine may read the command line of a browser, so that names a file which only its owner may read,
    as JupyterLab does it; it is removed in the end. folder: where it is best: browsers in a sandbox see the user's
    folders, but not /tmp.
    """
    if "microsoft" in platform.release().lower():  # WSL: a browser of Windows finds no file of Linux
        yield url
        return
    with ExitStack() as kept:
        yield _written(url, folder, f".dashboard-{port}.html", kept).as_uri()


def _written(url: str, folder: Path, name: str, kept: ExitStack) -> Path:
    page = f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={escape(url)}">'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _private(folder.absolute() / name, page)
    except OSError:  # a store that may only be read
        file = _private(Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="shardlab-"))) / name, page)
    kept.callback(file.unlink, missing_ok=True)
    return file


def _private(path: Path, text: str) -> Path:
    with suppress(FileNotFoundError):
        path.unlink()
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path
