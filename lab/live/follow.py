"""Follows a run: at each look only what is new since the last is read, in bounded memory and time.

That is the newest line of each rank's file, the metrics that have come, and the notes of what every rank does. Once the
run has ended, its tables are read instead, once.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from engine.job.job import Job
from engine.plain_file import GROWN, read_plain
from engine.processes.status.board import Note, read_board
from engine.recording.live_files import live_reference_path, status_path
from engine.recording.tables import metric_from
from lab.live.files import MetricsFile, newest_lines
from lab.live.newest import Newest, from_lines, from_tables
from lab.live.snapshot import RankNow, Snapshot, eta_seconds, rank_now, seconds_so_far
from lab.store.folder import WHOLE, Entry, RunInfo, read_entry
from lab.store.index import signature
from lab.store.store import Store, settle
from lab.store.stored_run import RunCorrupt, StoredRun

_DAMAGE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException, RunCorrupt)


class LiveRun:
    """One run in the store, as any process can follow it. Not for several threads at once."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store, self._folder = store, store.folder(run_id)
        self._metrics = MetricsFile(self._folder / "live" / "metrics.jsonl")
        self._newest: Newest | None = None
        self._job: Job | None = None
        self._notes: list[Note] = []
        self._moved: dict[int, tuple[int, float]] = {}  # rank: its counter, and when that was first seen
        self._reference: tuple[float, ...] = ()
        self._took: float | None = None
        self._ended, self._state = False, ""
        self._last = Snapshot(info=RunInfo(id=run_id, created="", status="corrupt"))

    def refresh(self) -> Snapshot:
        """The run as it is now. What is wrong with its folder is no exception, but the snapshot's `problem`."""
        if not self._folder.is_dir():
            return self._stays(f"The folder {self._folder} is gone.")
        self._notice_changes()
        entry = read_entry(self._folder)
        info = settle(entry.info)
        if info.status == "corrupt":
            return self._stays(info.message, info)
        try:
            self._job = self._job or Job.from_options(**info.job)
            if (self._folder / "live").is_dir():
                self._follow(self._job)
            elif info.status != "running" and not self._ended:  # else its tables are just being made
                self._take_tables(StoredRun(Entry(info, entry.digest), self._store))
        except (OSError, ValueError, pa.ArrowException) as error:
            return self._stays(str(error), info)
        except (LookupError, TypeError, AttributeError, ArithmeticError):  # of the right form, but of no run
            return self._stays(f"the tables of run {info.id} hold something that no run writes", info)
        self._last = self._snapshot(info, self._job)
        return self._last

    def _notice_changes(self) -> None:
        """The files of a run that has ended stay as they are; if they do not, what was read of them is out of date."""
        state = signature(self._folder)
        if self._ended and state != self._state:
            self._newest = self._job = self._took = None
            self._metrics.rows, self._reference = [], ()
            self._ended = False
        self._state = state

    def _stays(self, problem: str, info: RunInfo | None = None) -> Snapshot:
        """What was known last, and what keeps us from knowing more."""
        known = self._last.info
        told = known if info is None else replace(info, job=known.job or info.job)  # that of what is shown
        self._last = replace(self._last, info=told, problem=problem, eta_seconds=None)
        return self._last

    # -- reading -------------------------------------------------------------------------------------------------

    def _follow(self, job: Job) -> None:
        """Of a file that is not there yet, or not any more, or damaged, stays what it said last."""
        with suppress(*_DAMAGE):
            self._notes = [note for _, note in read_board(status_path(self._folder))]
        with suppress(*_DAMAGE):
            self._metrics.read()
        with suppress(*_DAMAGE):
            lines = newest_lines(self._folder, job.world_size)
            if lines and self._is_news(lines[0].totals.step):
                self._newest = from_lines(lines, self._metrics.rows)
        if not self._reference:
            with suppress(*_DAMAGE):
                found = json.loads(read_plain(live_reference_path(self._folder), GROWN))
                self._reference = tuple(map(float, found["losses"]))

    def _is_news(self, step: int) -> bool:
        """A step keeps its recording, so that what was found out about it is kept too, until its metrics are known."""
        known, rows = self._newest, self._metrics.rows
        if known is None or known.step != step:
            return True
        return not known.recording.metrics.num_rows and bool(rows) and rows[-1].step >= step

    def _take_tables(self, run: StoredRun) -> None:
        recording = run.recording
        peaks = {row["rank"]: row["total_peak"] for row in run.summary["memory"]["per_rank"]}
        self._newest = from_tables(recording, peaks)
        rows = self._metrics.rows = [metric_from(row) for row in recording.metrics.to_pylist()]
        self._metrics.behind = False
        if any(row.reference_loss == row.reference_loss for row in rows):  # not NaN
            self._reference = tuple(row.reference_loss for row in rows)
        self._took = run.summary.get("wall_s")
        self._ended = True

    # -- telling -------------------------------------------------------------------------------------------------

    def _snapshot(self, info: RunInfo, job: Job) -> Snapshot:
        newest, steps, wanted = self._newest, tuple(self._metrics.rows), job.training.steps
        known = Snapshot(
            info=info,
            steps=steps,
            steps_wanted=wanted,
            reference_losses=self._reference,
            ranks=self._ranks(info, job),
            tokens_per_second=steps[-1].tokens_per_second if steps else None,
            seconds=seconds_so_far(info, steps, self._took),
            eta_seconds=eta_seconds(info, newest, steps, wanted),
            behind=self._metrics.behind,
        )
        if newest is None:
            return known
        return replace(
            known,
            latest_step=newest.step,
            recording=newest.recording,
            memory_now=newest.memory_now,
            memory_peak=newest.memory_peak,
            bytes_so_far=newest.bytes_so_far,
        )

    def _ranks(self, info: RunInfo, job: Job) -> tuple[RankNow, ...]:
        step = None if self._newest is None else self._newest.step
        if info.status in WHOLE:
            recorded = () if self._newest is None else self._newest.memory_now  # of a simulation not all are
            return tuple(RankNow(rank, "done", step=step) for rank in sorted(recorded))
        ranks = range(job.world_size)
        if len(self._notes) < len(ranks):
            early = info.status == "running" and self._newest is None  # its processes are being made
            return tuple(RankNow(rank, "starting" if early else "unknown", step=step) for rank in ranks)
        return tuple(rank_now(rank, self._notes[rank], self._still_for(rank)) for rank in ranks)

    def _still_for(self, rank: int) -> float:
        counter, now = self._notes[rank].counter, time.monotonic()
        if self._moved.get(rank, (None,))[0] != counter:
            self._moved[rank] = (counter, now)
        return now - self._moved[rank][1]
