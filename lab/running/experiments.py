"""Runs worth starting together: each preset asks one question, and comparing its runs answers it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.job.job import Job

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Preset:
    """base: options of every run; knob and values: what they differ in, "" and () for a single run."""

    question: str
    base: Options = field(default_factory=dict)
    knob: str = ""
    values: tuple[Any, ...] = ()


DEMO: dict[str, Any] = {"dp": 2, "tp": 2, "pp": 2, "zero": 1}
PRESETS: dict[str, Preset] = {
    "2 × 2 × 2": Preset("All three axes at once, with ZeRO-1", DEMO),
    "ZeRO-1 against ZeRO-3": Preset(
        "What does ZeRO-3 save, and what does it send for it?", {"dp": 4, "layers": 8}, "zero", (1, 3)
    ),
    "All ZeRO stages": Preset("Which bytes go with each stage?", {"dp": 4, "layers": 8}, "zero", (0, 1, 2, 3)),
    "GPipe against 1F1B": Preset(
        "Same bubble: what is 1F1B for?",
        {"pp": 4, "microbatches": 8, "layers": 8, "schedule": "gpipe"},
        "schedule",
        ("gpipe", "1f1b"),
    ),
    "More micro-batches": Preset(
        "How does the bubble shrink?", {"pp": 4, "layers": 8, "batch": 32}, "microbatches", (4, 8, 16)
    ),
    "Bucket size": Preset("When do reductions hide under backward?", {"dp": 4, "layers": 8}, "bucket_kb", (40, 4000)),
    "One process": Preset("What every run is compared with"),
}


def jobs_of(base: Job, knob: str, values: tuple[Any, ...]) -> list[Job]:
    """`base` with each of the values of a knob; a schedule brings its number of chunks along. Raises `JobRefused`."""
    if not knob or not values:
        return [base]
    if knob == "schedule":
        return [base.under(Job.from_options(schedule=value).plan.schedule) for value in values]
    return [Job.from_options(base, **{knob: value}) for value in values]
