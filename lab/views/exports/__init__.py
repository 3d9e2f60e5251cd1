"""A run for other tools: Perfetto, Holistic Trace Analysis, spreadsheets and data frames. One file a format.

Importing this is quick; what a format needs is loaded when it is first written. It may import `store`, `analysis` and
the engine. Start with `export` below, then `tracks.py` and `perfetto.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from engine.job.errors import UserError, told
from lab.store.stored_run import RunCorrupt, StoreError, refuse_corrupt

if TYPE_CHECKING:
    from lab.analysis.recorded_run import RecordedRun
    from lab.views.exports.parts import Part

__all__ = ["FORMATS", "OF_A_STEP", "default_name", "export", "export_bytes"]

FORMATS = {
    "perfetto": "one Chrome-JSON file for ui.perfetto.dev or chrome://tracing",
    "hta": "a folder with a file a rank, for Holistic Trace Analysis",
    "csv": "a folder with the run's tables as CSV",
    "parquet": "a folder with the run's tables as Parquet",
}
OF_A_STEP = ("perfetto", "hta")
"""The formats that can be of one step."""


def export(run: RecordedRun, format: str, path: str | Path, step: int | None = None) -> Path:
    """Writes a run for another tool and returns where: a file for "perfetto", else a folder; in a path that ends in
    .zip the same, zipped. Old files of these names are replaced, each in one step.

    format: of `FORMATS`. step: of "perfetto" and "hta", only this one; default: all that were recorded.

    Raises `UserError` for an unknown format, a step that was not recorded, a run that completed no step and a folder
    that holds something else; `RunCorrupt` for a run that cannot be read; `StoreError` for a path that cannot be
    written.
    """
    from lab.views.exports.parts import write_file, write_folder, write_zip

    target = Path(path)
    with _in_words(run, str(path)):
        parts = _parts(run, format, step)
        if target.suffix == ".zip":
            write_zip(target, parts, folder=default_name(run, format))
        elif format != "perfetto":
            write_folder(target, parts)
        else:
            target = target / parts[0].name if target.is_dir() else target
            write_file(target, parts[0].write)
    return target


def export_bytes(run: RecordedRun, format: str, step: int | None = None) -> tuple[str, bytes, str]:
    """(file name, content, MIME type) of an export, for a download: "perfetto" as it is, the others as a zip.

    Raises what `export` raises.
    """
    from lab.views.exports.parts import zipped

    with _in_words(run, "download"):
        parts, name, file = _parts(run, format, step), default_name(run, format), BytesIO()
        if format == "perfetto":
            parts[0].write(file)
            return name, file.getvalue(), "application/json"
        zipped(file, parts, folder=name)
    return f"{name}.zip", file.getvalue(), "application/zip"


def default_name(run: RecordedRun, format: str) -> str:
    """What an export is called that nobody has named."""
    return f"{run.id}.perfetto.json" if format == "perfetto" else f"{run.id}-{format}"


def _parts(run: RecordedRun, format: str, step: int | None) -> list[Part]:
    """The files of an export, none of them written yet."""
    _refuse(run, format, step)
    if format == "perfetto":
        from lab.views.exports.perfetto import parts
    elif format == "hta":
        from lab.views.exports.hta import parts
    else:
        from lab.views.exports.tables import csv_parts, parquet_parts

        return csv_parts(run) if format == "csv" else parquet_parts(run)
    return parts(run, step)


def _refuse(run: RecordedRun, format: str, step: int | None) -> None:
    if format not in FORMATS:
        near = difflib.get_close_matches(format.lower(), FORMATS, n=1, cutoff=0.4)
        mean = f"did you mean {near[0]}?" if near else f"use {', '.join(FORMATS)}."
        raise UserError(f"there is no export format {told(format)}: {mean}")
    refuse_corrupt(run.id, run.status, run.message)
    if step is not None and format not in OF_A_STEP:
        raise UserError(f"step={step} is of {' and '.join(OF_A_STEP)}: {format} holds every step, leave it out.")
    if not run.summary["steps"]:
        raise UserError(f"run {run.id} completed no step ({run.status}), so there is nothing to export.")
    if format in OF_A_STEP:
        from engine.prediction.replay.steps import recorded_steps

        known = recorded_steps(run.recording)
        if not known:
            raise RunCorrupt(run.id, f"the tables of run {run.id} hold no step, though its summary does.")
        if step is not None and step not in known:
            raise UserError(f"step={step} was not recorded: use one of {min(known)} to {max(known)}.")


@contextmanager
def _in_words(run: RecordedRun, path: str) -> Iterator[None]:
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ArrowException) as error:
        if not isinstance(error, OSError) or error.errno is None:  # not of the system: a table that cannot be read
            raise RunCorrupt(run.id, f"the tables of run {run.id} cannot be read: {error}") from error
        in_the_way = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "part of its path is a file, not a folder" if in_the_way else error.strerror
        raise StoreError(f"the export {path} cannot be written: {reason}.") from error
