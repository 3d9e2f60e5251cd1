"""How a command looks at stored runs: whatever is wrong with one is told in a sentence."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine import HOME
from engine.job.errors import UserError
from lab.facade import Run, load
from lab.store.stored_run import RunCorrupt, RunNotFound, StoreError, refuse_corrupt

_FORESEEN = (UserError, RunCorrupt, RunNotFound, StoreError, OSError, UnicodeEncodeError)
"""Trouble with words, files or the terminal: no damage of a run."""

_OURS = {HOME.parent / package for package in ("engine", "lab")}


@contextmanager
def opened_runs(*names: str) -> Iterator[Sequence[Run]]:
    """The runs of these names, for the block to show.

    Raises `RunNotFound`, and `RunCorrupt` for a damaged folder. What nobody foresaw in the block ends it as
    `RunCorrupt` too: the frames of the files are checked when they are read, but not what a table tells, such as an
    operation inside one that there is not.
    """
    found = [load(name) for name in names]
    for run in found:
        refuse_corrupt(run.id, run.status, run.message)
    try:
        yield found
    except _FORESEEN:
        raise
    except Exception as error:
        ids = list(dict.fromkeys(run.id for run in found))
        words = f"{' or '.join(ids)} cannot be shown: the files hold something that no run writes ({_where(error)})."
        raise RunCorrupt(ids[0] if len(ids) == 1 else None, words) from error


def _where(error: Exception) -> str:
    """`KeyError: 99 at waits.py:41`, for whoever looks for the damage, or for a fault of ours."""
    what = f"{type(error).__name__}: {str(error)[:200]}".removesuffix(": ")
    ours = [at for at in traceback.extract_tb(error.__traceback__) if _OURS & set(Path(at.filename).parents)]
    return f"{what} at {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else what
