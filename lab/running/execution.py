"""One run under way: its processes are launched and heard, its folder is kept, and its end is said, whatever it is."""

from __future__ import annotations

import errno
import json
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine.whole_file import write_whole
from lab.store.clusters import find_cluster
from lab.store.folder import DISTANCES, Entry, RunInfo, digest
from lab.store.store import Store, StoreError
from lab.store.stored_run import Known, StoredRun

if TYPE_CHECKING:
    from engine.job.job import Job
    from engine.processes.root_cause import SystemTrouble
    from engine.program.program import Program
    from lab.store.summary import Outcome
    from lab.verdict import Distances

Event = dict[str, Any]
DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
FOLDER_TROUBLE = (errno.EACCES, errno.ENOENT)
MOST_LIVE_BYTES = 16_000_000
"""A run that ends early with more rows than this leaves them as they are: they can be read, and the end is quick."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run is. `phase`: "starting" processes, "ready" (all connected), a "step" done, "finishing".

    step counts from 0; seconds is the time of that step, tokens_per_second its throughput.
    """

    phase: Literal["starting", "ready", "step", "finishing"]
    run_id: str
    world_size: int
    steps: int
    step: int | None = None
    loss: float = math.nan
    grad_norm: float = math.nan
    seconds: float = math.nan
    tokens_per_second: float = math.nan


OnProgress = Callable[[Progress], None]


def reference_file(job: Job, store: Store) -> Path:
    """Where the one-process run that `job` is compared with is kept in the store."""
    from engine.execution.reference import reference_path

    return reference_path(job, store.root / "references")


def _agree(reports: list[Event]) -> None:
    """Raises `RunFailed` unless all ranks report the same loss and gradient norm: both are of the whole job."""
    from engine.processes.launch import Failure, RunFailed

    first = reports[0]
    for report in reports:
        for name in ("loss", "grad_norm"):
            if repr(report[name]) != repr(first[name]):
                odd = f"reports {name} {report[name]} of step {report['step']}"
                cause = f"{odd}, where rank {first['rank']} reports {first[name]}"
                raise RunFailed(Failure(f"rank {report['rank']}", "", cause, "", ()))


@dataclass
class Execution:
    """One run under way: the listener of its processes and the keeper of its folder."""

    job: Job
    program: Program
    parity: bool
    on_progress: OnProgress | None
    store: Store
    info: RunInfo
    began: float
    launched: float = 0.0
    ready: set[int] = field(default_factory=set)
    ready_s: float | None = None
    reports: dict[int, dict[int, Event]] = field(default_factory=lambda: defaultdict(dict))
    metrics: list[Any] = field(default_factory=list)
    finished: dict[int, Event] = field(default_factory=dict)
    reference: Event | None = None
    floor: Event | None = None

    @property
    def folder(self) -> Path:
        return self.store.folder(self.info.id)

    def run(self, cancel: threading.Event | None) -> StoredRun:
        """Carries the run out and returns it. Raises what ended it early, once that is written down."""
        from engine.processes.launch import RunCancelled, RunFailed

        try:
            self._launch(cancel)
            return self._finish()
        except (KeyboardInterrupt, RunCancelled):
            self._end_early("stopped", "stopped by the user")
            raise
        except OSError as error:
            trouble = self._store_trouble(error)
            self._end_early("failed", str(trouble or error))
            if trouble is None:
                raise
            raise trouble from error
        except RunFailed as error:
            self._end_early("failed", str(error))
            if (full := self._disk_trouble(error.failure.system)) is not None:
                raise full from error
            raise
        except BaseException as error:
            self._end_early("failed", f"{type(error).__name__}: {error}")
            raise

    def _launch(self, cancel: threading.Event | None) -> None:
        from engine.execution.reference import kept_floor, kept_losses
        from engine.execution.session import PRELOAD, choose_backend, members, usable_gpus
        from engine.processes.launch import launch
        from engine.recording.live_files import status_path

        backend = choose_backend(self.job.world_size, usable_gpus())
        self.info = replace(self.info, backend=backend.name, device=backend.device, backend_reason=backend.reason)
        self.store.write(self.info)
        write_whole(self.folder / "program.txt", self.program.text())
        if self.job.hardware.cluster:
            described = find_cluster(self.job.hardware.cluster, self.store).to_toml()
            write_whole(self.folder / "cluster.toml", described)
        reference = reference_file(self.job, self.store) if self.parity else None
        if reference is not None and (kept := kept_losses(reference)) is not None:
            self._on_reference(kept)
            self.floor = kept_floor(reference)
        self._notify("starting")
        self.launched = time.perf_counter()
        launch(
            members(self.job, self.folder, backend=backend, reference=reference, program=self.program),
            log_path=self.folder / "log.txt",
            run_json=self.folder / "run.json",
            status_path=status_path(self.folder),
            on_event=self._on_event,
            cancel=cancel,
            preload=PRELOAD,
        )

    # -- events ----------------------------------------------------------------------------------------------

    def _on_event(self, member: str, event: Event) -> None:
        match event["event"]:
            case "ready":
                self._on_ready(event)
            case "step":
                self._on_step(event)
            case "finished":
                self.finished[event["rank"]] = event
            case "reference":
                self._on_reference(event)
            case "floor":
                self.floor = event

    def _on_ready(self, event: Event) -> None:
        self.ready.add(event["rank"])
        if len(self.ready) == self.job.world_size:
            self.ready_s = time.perf_counter() - self.launched
            self._notify("ready")

    def _on_reference(self, found: Event) -> None:
        """Also shows it to those who follow the run."""
        from engine.recording.live_files import live_reference_path

        self.reference = {name: found[name] for name in ("losses", "grad_norms", "moved")}
        with suppress(OSError):  # what keeps the run from going on is told where its rows are written
            write_whole(live_reference_path(self.folder), json.dumps(self.reference))

    def _on_step(self, event: Event) -> None:
        from engine.recording.live_files import append_metric
        from engine.recording.tables import MetricRow

        step, reports = event["step"], self.reports[event["step"]]
        reports[event["rank"]] = event
        if len(reports) < self.job.world_size:
            return
        del self.reports[step]
        _agree(list(reports.values()))
        start = min(report["start_ns"] for report in reports.values())
        seconds = (max(report["end_ns"] for report in reports.values()) - start) / 1e9
        tokens = self.job.training.batch * self.job.model.seq
        loss, norm = float(event["loss"]), float(event["grad_norm"])
        row = MetricRow(step, loss, norm, seconds, tokens / seconds if seconds else math.nan, math.nan)
        self.metrics.append(row)
        append_metric(self.folder, row)
        self._notify("step", row)

    def _notify(self, phase: Literal["starting", "ready", "step", "finishing"], row: Any = None) -> None:
        if self.on_progress is None:
            return
        known: dict[str, Any] = {"run_id": self.info.id, "world_size": self.job.world_size}
        known["steps"] = self.job.training.steps
        done = {} if row is None else {k: v for k, v in row._asdict().items() if k != "reference_loss"}
        self.on_progress(Progress(phase=phase, **known, **done))

    # -- ending ----------------------------------------------------------------------------------------------

    def _finish(self) -> StoredRun:
        self._notify("finishing")
        assert self.reference is not None or not self.parity, "the ranks compared with a reference that nobody heard of"
        assert self.floor is not None or not self.parity, "the reference has a rounding floor that nobody heard of"
        resident, fingerprints = self._of_each_rank("rss_bytes"), self._of_each_rank("fingerprint")
        return self._keep(replace(self.info, status="finished", resident_bytes=resident, fingerprints=fingerprints))

    def _end_early(self, status: Literal["failed", "stopped"], message: str) -> None:
        """Says in the folder how the run ended, before anything else; then makes the tables, if that is quick."""
        from engine.recording.live_files import live_bytes

        ended = replace(self.info, status=status, message=message)
        with suppress(StoreError):
            self.store.write(ended)
        with suppress(Exception):  # what went wrong before is the news; the live rows stay readable as they are
            if live_bytes(self.folder) <= MOST_LIVE_BYTES:
                self._keep(ended)

    def _store_trouble(self, error: OSError) -> StoreError | None:
        """The error, if it is that the run folder cannot be used."""
        if (gone := self._gone(error.errno)) is not None:
            return gone
        path = Path(error.filename if isinstance(error.filename, (str, Path)) else self.folder).absolute()
        inside = path.is_relative_to(self.store.root) and error.errno in FOLDER_TROUBLE
        return StoreError.writing(path, error) if inside or error.errno in DISK_TROUBLE else None

    def _disk_trouble(self, told: SystemTrouble | None) -> StoreError | None:
        """What a rank was refused by its system, if it is that it could not write its rows."""
        if told is not None and (gone := self._gone(told.errno)) is not None:
            return gone
        if told is None or told.errno not in DISK_TROUBLE:
            return None
        return StoreError.writing(Path(told.filename or self.folder), OSError(told.errno, os.strerror(told.errno)))

    def _gone(self, number: int | None) -> StoreError | None:
        """That somebody has taken the run's folder away, if that is why there is no such file."""
        if number != errno.ENOENT or self.folder.is_dir():
            return None
        return StoreError(f"the folder {self.folder} was removed while its run went on, which ended it: run it again.")

    def _keep(self, info: RunInfo) -> StoredRun:
        """Makes the tables and the summary; `run.json` comes last, so that "finished" means everything is
        there.
        """
        from engine.execution.reference import prune
        from engine.recording.parquet import finalize, read_recording
        from lab.store.summary import summarise

        prune(self.store.root / "references")
        self._complete_metrics()
        if (self.folder / "live").is_dir():  # else the tables are made: what failed was the summary
            finalize(self.folder)
        recording = read_recording(self.folder)
        outcome = self._outcome()
        summary = summarise(info, self.job, self.program, recording, outcome)
        if self.job.hardware.cluster and info.status == "finished":
            from lab.running.simulation import replay_of
            from lab.store.simulated_summary import replay_numbers

            cluster = find_cluster(self.job.hardware.cluster, self.store)
            replay = replay_of(info.id, self.job, self.program, recording, cluster, self.store)
            summary |= {"replay": replay_numbers(replay.summary)}
        if outcome.distances is not None:
            write_whole(self.folder / DISTANCES, json.dumps(outcome.distances.to_json(), allow_nan=False))
        write_whole(self.folder / "summary.json", json.dumps(summary, indent=2, allow_nan=False))
        self.store.write(info)
        known = Known(self.job, self.program, recording, summary, distances=outcome.distances)  # no need to read it
        return StoredRun(Entry(info, digest(summary)), self.store, known)

    def _complete_metrics(self) -> None:
        """Writes the metrics again with the reference losses, which may arrive after the steps they
        belong to.
        """
        from engine.recording.live_files import metric_line

        path = self.folder / "live" / "metrics.jsonl"
        if self.reference is None or not path.exists():
            return
        pairs = zip(self.metrics, self.reference["losses"], strict=False)
        write_whole(path, "".join(metric_line(row._replace(reference_loss=loss)) for row, loss in pairs))

    def _outcome(self) -> Outcome:
        from lab.store.summary import Outcome

        return Outcome(distances=self._distances(), ready_s=self.ready_s, wall_s=time.perf_counter() - self.began)

    def _distances(self) -> Distances | None:
        """None for a run that was not compared, or did not get to its end."""
        from engine.execution.reference import watched_steps
        from lab.verdict import distances_of

        steps = self.job.training.steps
        if self.reference is None or len(self.metrics) < steps or len(self.finished) < self.job.world_size:
            return None
        rows = [row._asdict() for row in self.metrics]
        return distances_of(rows, self.reference, self.floor, self.finished, watched_steps(steps))

    def _of_each_rank(self, name: str) -> tuple[Any, ...]:
        """What each rank reported at its end, in the order of ranks; () if one did not."""
        reported = [self.finished.get(rank, {}).get(name) for rank in range(self.job.world_size)]
        return tuple(reported) if all(reported) else ()
