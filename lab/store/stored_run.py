"""A run as a learner holds it: what it was, what it proved, its tables and its figures."""

from __future__ import annotations

import html
import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.store.folder import WHOLE, Entry, RunInfo, Status
from lab.store.store import RunNotFound, Store, StoreError
from lab.store.validation import check_summary
from lab.wording import one_line, percent, seconds

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from engine.cluster.cluster import Cluster
    from engine.job.job import Job
    from engine.program.program import Program
    from engine.recording.tables import Recording

__all__ = ["Run", "RunCorrupt", "RunNotFound", "Store", "StoreError", "load", "runs"]

Row = dict[str, Any]


class RunCorrupt(ValueError):
    """The folder of a run is damaged. run: its id, None if it is one of several. The message, one line, says what is
    wrong.
    """

    def __init__(self, run: str | None, message: str) -> None:
        super().__init__(one_line(message))  # which may quote what stands in the damaged file
        self.run = run


class Run:
    """One run in the store, finished or not. Data is read from its folder when first asked for, then kept."""

    def __init__(self, entry: Entry, store: Store) -> None:
        self.info: RunInfo = entry.info
        self.digest: Row = entry.digest
        self.store = store

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
        from engine.job.errors import JobRefused
        from engine.job.job import Job

        try:
            return Job.from_options(**self.info.job) if self.info.job else Job.from_toml(self.folder / "job.toml")
        except JobRefused as error:
            raise RunCorrupt(self.id, f"the job of run {self.id} cannot be read: {error}") from error

    @cached_property
    def program(self) -> Program:
        """The program that was run, one step of it. `print(run.program.text())` shows it."""
        from engine.program.program import Program

        try:
            return Program.parse((self.folder / "program.txt").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunCorrupt(self.id, f"the program of run {self.id} cannot be read: {error}") from error

    @cached_property
    def recording(self) -> Recording:
        """What the ranks did, as Arrow tables `ops`, `memory` and `metrics`."""
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
        path = self.folder / "summary.json"
        try:
            found: Row = json.loads(path.read_text(encoding="utf-8"))
            check_summary(found, simulated=self.status == "simulated")
            return found
        except FileNotFoundError:
            from lab.store.summary import summarise

            return summarise(self.info, self.job, self.program, self.recording)
        except (OSError, ValueError) as error:
            raise RunCorrupt(self.id, f"summary.json of run {self.id} cannot be read: {error}") from error

    @cached_property
    def cluster(self) -> Cluster | None:
        """The described cluster that the run was simulated or is replayed on; None if it names none."""
        path = self.folder / "cluster.toml"
        if not path.exists():
            return None
        from engine.cluster.cluster import load_cluster

        try:
            return load_cluster(path)
        except ValueError as error:
            raise RunCorrupt(self.id, f"the cluster of run {self.id} cannot be read: {error}") from error

    def replay(self, cluster: str | Cluster | None = None) -> Run:
        """This run as `cluster` would carry it out, by default the one it names: a simulated run in memory.

        What the ranks did, and what waits for what, stays; times are those of the described hardware. Raises
        `JobRefused` if there is no such cluster, it is too small, or no step of the run was completed.
        """
        from lab.running.simulation import replayed

        return replayed(self, cluster)

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

    # -- pictures --------------------------------------------------------------------------------------------

    def timeline(self, step: int | None = None, **options: Any) -> go.Figure:
        """Ranks × time of one step (default: a typical one)."""
        from lab.views import figures

        return figures.timeline(self, step=step, **options)

    def grid(self, **options: Any) -> go.Figure:
        """Where each rank sits on the data × tensor × pipeline grid."""
        from lab.views import figures

        return figures.grid(self, **options)

    def memory(self, **options: Any) -> go.Figure:
        """Memory of each rank by category, measured beside predicted."""
        from lab.views import figures

        return figures.memory(self, **options)

    def communication(self, **options: Any) -> go.Figure:
        """Bytes sent on each axis, measured beside predicted."""
        from lab.views import figures

        return figures.communication(self, **options)

    def ledger(self, **options: Any) -> go.Figure:
        """What one rank sends on each axis, with calls and seconds."""
        from lab.views import figures

        return figures.ledger(self, **options)

    def shards(self, unit: str | None = None, **options: Any) -> go.Figure:
        """The weight matrices of a unit, such as "block0", with who keeps which part."""
        from lab.views import figures

        return figures.shards(self, unit, **options)

    def schedules(self, **options: Any) -> go.Figure:
        """The run's job under every schedule at unit costs, beside each other."""
        from lab.views import figures

        return figures.schedules(self, **options)

    def report(self, path: str | Path, cluster: str | Cluster | None = None) -> Path:
        """Writes one self-contained HTML file and returns its path.

        cluster: what the run is replayed on, to be laid beside what was measured; default: the one it names, if any.
        """
        from lab.views.report import write_report

        put = cluster or self.cluster
        if put is None or self.status == "simulated" or not self.steps:
            return write_report(self, Path(path))
        found = self.replay(put)
        return write_report(self, Path(path), found.recording, str(found.summary["cluster"]))

    def export(self, format: str, path: str | Path, step: int | None = None) -> Path:
        """Writes the run for another tool: "perfetto", "hta", "csv" or "parquet"; see `lab.views.exports.export`."""
        from lab.views.exports import export

        return export(self, format, path, step)

    @cached_property
    def by_hand(self) -> bool:
        """Whether what was run is not what its job compiles to, but a program or schedule of somebody's own."""
        from engine.program.compile import compile_job

        return self.status != "simulated" and self.program != compile_job(self.job)

    # -- words -----------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<Run {self.id}: {', '.join(self._facts())}>"

    def _repr_html_(self) -> str:
        first, *rest = (html.escape(fact) for fact in self._facts())
        colour = "#0072B2" if self.status in WHOLE and self.digest.get("parity") is not False else "#D55E00"
        badge = f"border:1px solid {colour};border-radius:4px;padding:1px 6px;color:{colour}"
        lines = f'<span style="{badge}">{first}</span> <code>{html.escape(self.id)}</code>'
        return f'<div style="line-height:1.8">{lines}<br>{" · ".join(rest)}</div>'

    def _facts(self) -> list[str]:
        """The run in a few words, the most important first."""
        facts = [self._headline()]
        if self.info.job:
            plan = self.info.job
            facts.append(f"{plan['dp']} data × {plan['tp']} tensor × {plan['pp']} pipeline")
            facts.append(f"{plan['schedule']}, ZeRO-{plan['zero']}")
        if self.status == "simulated" and self.digest:
            facts.append(f"{seconds(self.digest['step_seconds'])} a step, MFU {percent(self.digest['mfu'])}")
        if self.digest.get("loss") is not None and self.status != "simulated":  # a replay keeps that of its step
            facts.append(f"loss {self.digest['loss']:.4f} after {self.digest['steps']} steps")
        if self.message and self.status not in WHOLE:
            facts.append(self.message.splitlines()[0])
        return facts

    def _headline(self) -> str:
        parity = self.digest.get("parity")
        if self.status == "simulated":
            return f"simulated on {self.digest.get('cluster', 'a cluster')}"
        if self.status != "finished" or parity is None:
            return self.status
        return "✔ equal to one process" if parity else "✘ differs from one process"


def load(name: str | int = "latest", store: Store | None = None) -> Run:
    """The run with this id, the beginning or end of an id, `latest`, or -1 (newest), -2… Raises
    `RunNotFound`.
    """
    store = store or Store()
    return Run(store.find(str(name)), store)


def runs(store: Store | None = None) -> list[Run]:
    """All runs in the store, newest first."""
    store = store or Store()
    return [Run(entry, store) for entry in store.entries()]
