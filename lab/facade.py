"""The run as a learner holds it: a stored run with its figures, its report, its exports and its replay.

Only the edge of the lab makes one: `lab.run`, `lab.load` and their kin, the command line, widgets and pages. Inside, a
run is data (`lab.store.stored_run`).
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.loading import import_whole
from lab.store.folder import WHOLE
from lab.store.store import Store
from lab.store.stored_run import StoredRun

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from engine.cluster.cluster import Cluster

__all__ = ["Run", "load", "runs"]


class Run(StoredRun):
    """One run in the store, finished or not, or a simulation in memory."""

    @classmethod
    def of(cls, stored: StoredRun) -> Run:
        """The same run, with what a learner does with it."""
        return cls(stored.entry, stored.store, stored.known)

    def replay(self, cluster: str | Cluster | None = None) -> Run:
        """This run as `cluster` would carry it out, by default the one it names: a simulated run in memory.

        What the ranks did, and what waits for what, stays; times are those of the described hardware. Raises
        `JobRefused` if there is no such cluster, it is too small, or no step of the run was completed.
        """
        import_whole("lab.running.simulation", "engine.prediction.replay.replay")
        from lab.running.simulation import replayed

        return Run.of(replayed(self, cluster))

    # -- pictures --------------------------------------------------------------------------------------------

    def timeline(self, step: int | None = None, **options: Any) -> go.Figure:
        """Ranks × time of one step (default: a typical one)."""
        import_whole("lab.views.figures")
        from lab.views import figures

        return figures.timeline(self, step=step, **options)

    def grid(self, **options: Any) -> go.Figure:
        """Where each rank sits on the data × tensor × pipeline grid."""
        import_whole("lab.views.figures")
        from lab.views import figures

        return figures.grid(self, **options)

    def memory(self, **options: Any) -> go.Figure:
        """Memory of each rank by category, measured beside predicted."""
        import_whole("lab.views.figures")
        from lab.views import figures

        return figures.memory(self, **options)

    def communication(self, **options: Any) -> go.Figure:
        """Bytes sent on each axis, measured beside predicted."""
        import_whole("lab.views.figures")
        from lab.views import figures

        return figures.communication(self, **options)

    def ledger(self, **options: Any) -> go.Figure:
        """What one rank sends on each axis, with calls and seconds."""
        import_whole("lab.views.figures")
        from lab.views import figures

        return figures.ledger(self, **options)

    def shards(self, unit: str | None = None, **options: Any) -> go.Figure:
        """The weight matrices of a unit, such as "block0", with who keeps which part."""
        import_whole("lab.views.figures")
        from lab.views import figures

        return figures.shards(self, unit, **options)

    def schedules(self, **options: Any) -> go.Figure:
        """The run's job under every schedule at unit costs, beside each other."""
        import_whole("lab.views.figures")
        from lab.views import figures

        return figures.schedules(self, **options)

    def verdict(self, **options: Any) -> go.Figure:
        """The microscope: how far loss, gradient norm and weights are from one process, step by step, against the
        rounding floor and what is allowed. `proof` says the same in words."""
        from lab.views import figures

        return figures.verdict(self, **options)

    def report(self, path: str | Path, cluster: str | Cluster | None = None) -> Path:
        """Writes one self-contained HTML file and returns its path.

        cluster: what the run is replayed on, to be laid beside what was measured; default: the one it names, if any.
        """
        import_whole("lab.views.report")
        from lab.views.report import write_report

        put = cluster or self.cluster
        if put is None or self.status == "simulated" or not self.steps:
            return write_report(self, Path(path))
        found = self.replay(put)
        return write_report(self, Path(path), found.recording, str(found.summary["cluster"]))

    def export(self, format: str, path: str | Path, step: int | None = None) -> Path:
        """Writes the run for another tool: "perfetto", "hta", "csv" or "parquet"; see `lab.views.exports.export`."""
        import_whole("lab.views.exports")
        from lab.views.exports import export

        return export(self, format, path, step)

    def _repr_html_(self) -> str:
        first, *rest = (html.escape(fact) for fact in self.facts())
        colour = "#0072B2" if self.status in WHOLE and self.badge.passed is not False else "#D55E00"
        badge = f"border:1px solid {colour};border-radius:4px;padding:1px 6px;color:{colour}"
        lines = f'<span style="{badge}">{first}</span> <code>{html.escape(self.id)}</code>'
        return f'<div style="line-height:1.8">{lines}<br>{" · ".join(rest)}</div>'


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
