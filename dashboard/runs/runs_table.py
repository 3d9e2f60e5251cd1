"""The table of runs: one row a run, with what a reader looks for, filtered. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lab.store.folder import Entry
from lab.store.notes import Notes
from lab.verdict import brief
from lab.wording import schedule_words, stored_degrees

STATUSES = ("queued", "running", "finished", "failed", "stopped", "killed", "corrupt", "simulated")
SIGNS = {
    "queued": "○ queued",
    "running": "▶ running",
    "finished": "✔ finished",
    "failed": "✘ failed",
    "stopped": "■ stopped",
    "killed": "✘ killed",
    "corrupt": "⚠ corrupt",
    "simulated": "◇ simulated",
}
MOST_MESSAGE = 200  # letters


@dataclass(frozen=True)
class Listed:
    """A run with what its reader wrote on it."""

    entry: Entry
    notes: Notes


@dataclass(frozen=True)
class Wanted:
    """What the list is narrowed to; "" and () narrow nothing."""

    words: str = ""
    statuses: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    starred: bool = False


def wanted(runs: Sequence[Listed], by: Wanted) -> list[Listed]:
    """The runs that fit, in the order they came."""
    return [run for run in runs if _fits(run, by)]


def _fits(run: Listed, by: Wanted) -> bool:
    info, notes = run.entry.info, run.notes
    options = [f"{name}={value}" for name, value in info.job.items()]
    text = " ".join([info.id, info.status, info.message, notes.name, *notes.tags, *options]).lower()
    return (
        all(word in text for word in by.words.lower().split())
        and (not by.statuses or info.status in by.statuses)
        and (not by.tags or bool(set(by.tags) & set(notes.tags)))
        and (notes.star or not by.starred)
    )


def frame(runs: Sequence[Listed]) -> pd.DataFrame:
    """One row a run. Bytes in MB, times in ms, shares in percent; what is not known is empty."""
    return pd.DataFrame([_row(run) for run in runs], columns=list(_row(_NOBODY)))


def _row(run: Listed) -> dict[str, Any]:
    info, digest, job = run.entry.info, run.entry.digest, run.entry.info.job

    def scaled(name: str, factor: float) -> float | None:
        value = digest.get(name)
        return None if value is None else value * factor

    return {
        "★": "★" if run.notes.star else "",
        "Name": run.notes.name,
        "Status": SIGNS[info.status],
        "Mesh": " × ".join(stored_degrees(job).values()) if job else "",
        "ZeRO": job.get("zero"),
        "Schedule": schedule_words(job["schedule"]) if "schedule" in job else "",
        "Fault": job.get("bug") or "",
        "One process": brief(digest.get("parity"), digest.get("verdict")).short,
        "Step, ms": scaled("step_seconds", 1e3),
        "Bubble, %": scaled("bubble", 1e2),
        "Peak, MB": scaled("peak_bytes", 1e-6),
        "Loss": digest.get("loss"),
        "Started": info.created,
        "Micro-batches": job.get("microbatches"),
        "Tags": list(run.notes.tags),
        "Message": info.message.strip().partition("\n")[0][:MOST_MESSAGE],
        "Id": info.id,
    }


def _nobody() -> Listed:
    from lab.store.folder import RunInfo

    return Listed(Entry(RunInfo(id="", created="", status="finished"), {}), Notes())


_NOBODY = _nobody()
