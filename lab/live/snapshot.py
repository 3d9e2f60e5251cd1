"""What is known of a run at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from engine.processes.status.board import Note, Phase
from engine.recording.tables import MetricRow, Recording
from lab.live.newest import ByRank, Newest
from lab.store.folder import RunInfo

Doing = Literal["starting", "computing", "waiting", "writing", "done", "unknown"]
_WORDS: dict[Phase, Doing] = {
    Phase.STARTING: "starting",
    Phase.COMPUTING: "computing",
    Phase.WAITING: "waiting",
    Phase.AWAITING: "waiting",
    Phase.WRITING: "writing",
    Phase.DONE: "done",
}


@dataclass(frozen=True)
class RankNow:
    """What a rank does now; of a run that ended early, what it did last. "unknown": nobody could look.

    action: such as "forward block1 mb0". step counts from 0, None before the first. still_for: seconds for which the
    reader has seen no progress. cpu_seconds: used by its process, up to 0.25 s ago.
    """

    rank: int
    phase: Doing
    action: str = ""
    step: int | None = None
    still_for: float = 0.0
    cpu_seconds: float = 0.0


def rank_now(rank: int, note: Note, still_for: float) -> RankNow:
    """note: what the rank last wrote of itself. still_for: seconds since that note last changed."""
    step = note.step if note.step >= 0 else None
    return RankNow(rank, _WORDS[note.phase], note.action, step, still_for, note.cpu_seconds)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run at one moment. `info` is settled: "running" only while its processes can be there.

    steps: a row for each completed step; all of them, unless `behind`: then the next refresh brings more.
    steps_wanted: 0 where even that cannot be read.
    reference_losses: of one process, by step; () while not known.
    latest_step: the newest one whose rows all ranks have written, which may be a step ahead of `steps`.
    recording: that step alone, for `lab.views.timeline.timeline_data` and `lab.analysis`. Its rows are made when they
    are asked for; `ValueError` if the files hold something else. memory_now, memory_peak: rank → category → bytes, at
    the end of that step and the most until then; of the peaks `TOTAL` is that of all categories together at any one
    time. bytes_so_far: axis → logical bytes of each rank, in their order, all steps together, counted as in a ledger.
    tokens_per_second: of the last of `steps`. seconds: since the run was asked for, or what it took; of a killed run
    those of its steps. problem: in words, what keeps us from knowing more; "" if nothing does.
    """

    info: RunInfo
    steps: tuple[MetricRow, ...] = ()
    steps_wanted: int = 0
    reference_losses: tuple[float, ...] = ()
    ranks: tuple[RankNow, ...] = ()
    latest_step: int | None = None
    recording: Recording | None = None
    memory_now: ByRank = field(default_factory=dict)
    memory_peak: ByRank = field(default_factory=dict)
    bytes_so_far: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tokens_per_second: float | None = None
    seconds: float = 0.0
    eta_seconds: float | None = None
    behind: bool = False
    problem: str = ""


def seconds_so_far(info: RunInfo, steps: tuple[MetricRow, ...], took: float | None) -> float:
    """took: what the summary of a run that has ended says."""
    if info.status != "running":
        return sum(row.seconds for row in steps) if took is None else took
    began = datetime.fromisoformat(info.created)
    return max(0.0, (datetime.now(began.tzinfo) - began).total_seconds())


def eta_seconds(info: RunInfo, newest: Newest | None, steps: tuple[MetricRow, ...], wanted: int) -> float | None:
    """From the pace of all steps but the first, which warms up, or of that one if there is no other."""
    if info.status != "running" or newest is None:
        return None
    pace = newest.pace if newest.pace is not None else steps[0].seconds if steps else None
    return None if pace is None else (wanted - 1 - newest.step) * pace
