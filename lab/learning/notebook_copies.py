"""A learner's own copy of the notebooks, which is never written over.

Beside the copies, `.jupyter/originals.json` keeps the hash of each original when it was copied. It tells a copy that
the learner has changed from one that merely is of an older original.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path

from engine import HOME
from engine.job.errors import UserError
from engine.plain_file import GROWN, read_plain, read_text
from engine.whole_file import write_whole

ORIGINALS = HOME.parent / "notebooks"
FIRST = "index.ipynb"
HIDDEN = ".jupyter"  # in the copy: its manifest, and JupyterLab's settings for it
_MANIFEST = f"{HIDDEN}/originals.json"


@dataclass(frozen=True)
class Copied:
    """What was done, as file names in the working copy."""

    copied: tuple[str, ...] = ()  # not there before, or there unchanged and of an older original
    kept: tuple[str, ...] = ()  # changed by the learner
    beside: tuple[str, ...] = ()  # the newer originals of some of these, under names of their own
    aside: tuple[str, ...] = ()  # what was changed, under new names, where a fresh copy was asked for

    def words(self) -> str:
        """One line."""
        parts = [
            f"{len(self.copied)} notebook{'s' * (len(self.copied) != 1)} copied"
            if self.copied
            else "nothing new to copy",
            f"{len(self.kept)} that you changed kept" if self.kept else "",
            f"newer originals put beside them: {', '.join(self.beside)}" if self.beside else "",
            f"yours put aside: {', '.join(self.aside)}" if self.aside else "",
        ]
        return "; ".join(part for part in parts if part)


def update(folder: Path, fresh: bool = False, originals: Path = ORIGINALS) -> Copied:
    """Brings `folder` up to date with `originals`. fresh: a changed copy is put aside and copied anew.

    Raises `UserError` if there are no originals, or `folder` cannot be their copy.
    """
    found = sorted(originals.glob("*.ipynb"))
    if not found:
        raise UserError(f"there are no notebooks in {originals}: run `lab notebooks` from a checkout of Shardlab.")
    _refuse(folder, originals)
    manifest = _read(folder / _MANIFEST)
    done = [_update_one(original, folder, manifest.get(original.name), fresh) for original in found]
    (folder / HIDDEN).mkdir(parents=True, exist_ok=True)
    hashes = {original.name: _digest(original) for original in found}
    write_whole(folder / _MANIFEST, json.dumps(hashes, indent=1) + "\n")
    return Copied(*(tuple(name for one in done for name in getattr(one, field.name)) for field in fields(Copied)))


def _update_one(original: Path, folder: Path, known: str | None, fresh: bool) -> Copied:
    """known: the hash of the original that the copy was made of."""
    name, mine = original.name, folder / original.name
    new, now = _digest(original), _digest(mine)
    if now == new:
        return Copied()
    if now in (None, known):
        return Copied(copied=(_copy(original, mine),))
    if fresh:
        aside = mine.rename(_free(folder, name, ".bak"))
        return Copied(copied=(_copy(original, mine),), aside=(aside.name,))
    if known == new:
        return Copied(kept=(name,))
    return Copied(kept=(name,), beside=(_copy(original, _free(folder, f"{mine.stem}.new", ".ipynb")),))


def _refuse(folder: Path, originals: Path) -> None:
    if folder.resolve().is_relative_to(originals.resolve()):
        raise UserError(f"{folder} holds the originals, which stay clean: choose another, as in `--to lab-notebooks`.")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: choose a folder, as in `--to lab-notebooks`.")


def _read(manifest: Path) -> dict[str, str]:
    """Empty if it is not there or damaged: then every copy that differs counts as changed, and is kept."""
    try:
        found = json.loads(read_text(manifest))
    except (OSError, ValueError):
        return {}
    return {str(name): str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def _digest(path: Path) -> str | None:
    return hashlib.sha256(read_plain(path, GROWN)).hexdigest() if path.exists() else None


def _copy(original: Path, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(original, path)
    return path.name


def _free(folder: Path, stem: str, ending: str) -> Path:
    """A path nobody has taken: `stem` and `ending`, with a number between them if needed."""
    paths = (folder / f"{stem}{f'-{number}' if number > 1 else ''}{ending}" for number in count(1))
    return next(path for path in paths if not path.exists())
