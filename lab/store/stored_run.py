"""A run in the store, finished or not, as data: what it was, what it proved, its tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.loading import import_whole
from engine.plain_file import GROWN, read_text
from lab.store.folder import DISTANCES, WHOLE, Entry, RunInfo, Status
from lab.store.store import RunNotFound, Store, StoreError
from lab.store.validation import check_summary
from lab.verdict import Badge, Distances, Verdict, brief, verdict_of
from lab.wording import fault_words, one_line, percent, seconds, stored_mesh_words

if TYPE_CHECKING:
    from engine.cluster.cluster import Cluster
    from engine.job.job import Job
    from engine.program.program import Program
    from engine.recording.tables import Recording

__all__ = ["Known", "RunCorrupt", "RunNotFound", "Store", "StoreError", "StoredRun"]

Row = dict[str, Any]


class RunCorrupt(ValueError):
    """The folder of a run is damaged. run: its id, None if it is one of several. The message, one line, says what is
    wrong.
    """

    def __init__(self, run: str | None, message: str) -> None:
        super().__init__(one_line(message))  # which may quote what stands in the damaged file
        self.run = run


def refuse_corrupt(run_id: str, status: str, message: str) -> None:
    """Raises `RunCorrupt` for a run that was found to be damaged when it was looked up."""
    if status == "corrupt":
        raise RunCorrupt(run_id, f"run {run_id} is corrupt: {message}.")


@dataclass(frozen=True)
class Known:
    """What is at hand of a run already, so that it need not be read; of one in no store, all there is."""

    job: Job | None = None
    program: Program | None = None
    recording: Recording | None = None
    summary: Row | None = None
    cluster: Cluster | None = None
    distances: Distances | None = None


class StoredRun:
    """One run. Data is read from its folder when first asked for, then kept. known: what is at hand already."""

    def __init__(self, entry: Entry, store: Store, known: Known | None = None) -> None:
        self.info: RunInfo = entry.info
        self.digest: Row = entry.digest
        self.store = store
        self.known = known or Known()

    @property
    def entry(self) -> Entry:
        return Entry(self.info, self.digest)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def status(self) -> Status:
        """running, finished, failed, stopped (by the user), killed (its program went away), corrupt or simulated."""
        return self.info.status

    @property
    def message(self) -> str:
        """Why the run failed, or is corrupt; else empty."""
        return self.info.message

    @property
    def folder(self) -> Path:
        return self.store.folder(self.id)

    @cached_property
    def job(self) -> Job:
        if self.known.job is not None:
            return self.known.job
        import_whole("engine.job.job")
        from engine.job.errors import JobRefused
        from engine.job.job import Job

        try:
            return Job.from_options(**self.info.job) if self.info.job else Job.from_toml(self.folder / "job.toml")
        except JobRefused as error:
            raise RunCorrupt(self.id, f"the job of run {self.id} cannot be read: {error}") from error

    @cached_property
    def program(self) -> Program:
        """The program that was run, one step of it. `print(run.program.text())` shows it."""
        if self.known.program is not None:
            return self.known.program
        from engine.program.program import Program

        try:
            return Program.parse(read_text(self.folder / "program.txt", GROWN))
        except (OSError, ValueError) as error:
            raise RunCorrupt(self.id, f"the program of run {self.id} cannot be read: {error}") from error

    @cached_property
    def recording(self) -> Recording:
        """What the ranks did, as Arrow tables `ops`, `memory` and `metrics`."""
        if self.known.recording is not None:
            return self.known.recording
        import_whole("engine.recording.parquet")
        import pyarrow as pa

        from engine.recording.parquet import StoredRecording, read_recording

        try:
            found = read_recording(self.folder)
            if isinstance(found, StoredRecording):
                found.check_ranks(self.job.world_size)
            return found
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise RunCorrupt(self.id, f"the tables of run {self.id} cannot be read: {error}") from error

    @cached_property
    def summary(self) -> Row:
        """The numbers of the run, as in `summary.json`; for a killed run made from what it left behind."""
        if self.known.summary is not None:
            return self.known.summary
        path = self.folder / "summary.json"
        try:
            found: Row = json.loads(read_text(path, GROWN))
            check_summary(found, simulated=self.status == "simulated")
            return found
        except FileNotFoundError:
            from lab.store.summary import summarise

            return summarise(self.info, self.job, self.program, self.recording)
        except (OSError, ValueError) as error:
            raise RunCorrupt(self.id, f"summary.json of run {self.id} cannot be read: {error}") from error

    @cached_property
    def proof(self) -> Verdict:
        """Whether the run equals one process, in words, with the numbers and limits that it rests on."""
        return verdict_of(self.summary.get("parity") or {})

    @property
    def badge(self) -> Badge:
        """The same in a few words, without opening the run's files."""
        return brief(self.digest.get("parity"), self.digest.get("verdict"), self.digest.get("first_step_out"))

    @cached_property
    def distances(self) -> Distances | None:
        """How far the run was from one process, step by step; None for one that was not compared, or is of before
        that was kept."""
        if self.known.distances is not None:
            return self.known.distances
        path = self.folder / DISTANCES
        try:
            return Distances.from_json(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise RunCorrupt(self.id, f"{DISTANCES} of run {self.id} cannot be read: {error}") from error

    @cached_property
    def cluster(self) -> Cluster | None:
        """The described cluster that the run was simulated or is replayed on; None if it names none."""
        if self.known.cluster is not None:
            return self.known.cluster
        path = self.folder / "cluster.toml"
        if not path.exists():
            return None
        from engine.cluster.cluster import load_cluster

        try:
            return load_cluster(path)
        except ValueError as error:
            raise RunCorrupt(self.id, f"the cluster of run {self.id} cannot be read: {error}") from error

    @property
    def steps(self) -> list[Row]:
        """One row a step: loss, gradient norm, seconds, tokens a second."""
        rows: list[Row] = self.summary["steps"]
        return rows

    @cached_property
    def ops(self) -> list[Row]:
        """One row for each operation of each rank; columns as in `engine.recording.tables.Op`."""
        rows: list[Row] = self.recording.ops.to_pylist()
        return rows

    @cached_property
    def memory_table(self) -> list[Row]:
        """One row for each change of memory: from `time_ns` on, `category` holds `bytes` on `rank`."""
        rows: list[Row] = self.recording.memory.to_pylist()
        return rows

    @property
    def communication_table(self) -> list[Row]:
        """Bytes by axis and operation, per rank and step, counted and predicted."""
        rows: list[Row] = self.summary["communication"]
        return rows

    @cached_property
    def by_hand(self) -> bool:
        """Whether what was run is not what its job compiles to, but a program or schedule of somebody's own."""
        from engine.program.compile import program_of

        return self.status != "simulated" and self.program != program_of(self.job)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {', '.join(self.facts())}>"

    def facts(self) -> list[str]:
        """The run in a few words, the most important first."""
        facts = [self._headline()]
        if self.info.job:
            plan = self.info.job
            facts.append(stored_mesh_words(plan))
            facts.append(f"{plan['schedule']}, ZeRO-{plan['zero']}")
            facts += filter(None, [fault_words(plan.get("bug", ""))])
        if self.status == "simulated" and self.digest:
            facts.append(f"{seconds(self.digest['step_seconds'])} a step, MFU {percent(self.digest['mfu'])}")
        if self.digest.get("loss") is not None and self.status != "simulated":  # a replay keeps that of its step
            facts.append(f"loss {self.digest['loss']:.4f} after {self.digest['steps']} steps")
        if self.message and self.status not in WHOLE:
            facts.append(self.message.splitlines()[0])
        return facts

    def _headline(self) -> str:
        if self.status == "simulated":
            return f"simulated on {self.digest.get('cluster', 'a cluster')}"
        if self.status != "finished" or self.badge.state == "none":
            return self.status
        return f"{self.badge.mark} {self.badge.words}"
