"""The files of an export, and the ways to write them: alone, as a folder, as a zip."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.job.errors import UserError
from engine.whole_file import whole_file


@dataclass(frozen=True)
class Part:
    """One file: its name, and what puts its content into an open file."""

    name: str
    write: Callable[[IO[bytes]], None]


def write_file(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Replaces `path` in one step, so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as draft, draft.open("wb") as file:
        write(file)


def write_folder(folder: Path, parts: Sequence[Part]) -> None:
    """Raises `UserError` if the folder holds other files: a tool that reads all of a folder would mix them in."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {part.name for part in parts}
    strays = sorted(p.name for p in folder.iterdir() if p.name not in names and not p.name.startswith("."))
    if strays:
        raise UserError(f"the folder {folder} holds {strays[0]}, which is not of this export: name another folder.")
    for part in parts:
        write_file(folder / part.name, part.write)


def write_zip(path: Path, parts: Iterable[Part], folder: str) -> None:
    """Replaces `path` in one step by a zip in which the parts lie in `folder`."""
    write_file(path, lambda file: zipped(file, parts, folder))


def zipped(file: IO[bytes], parts: Iterable[Part], folder: str) -> None:
    """Writes a zip of the parts, in a folder of their own."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in parts:
            with archive.open(f"{folder}/{part.name}", "w", force_zip64=True) as inside:
                part.write(inside)
