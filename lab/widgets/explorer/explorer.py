"""The explorer: turn a knob, see at once what is predicted, and then what really happened."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets

from engine.cluster.cluster import Cluster
from engine.cluster.scaled_links import scaled
from engine.job.errors import JobRefused, told
from engine.job.job import Hardware, Job
from engine.processes.launch import RunCancelled
from engine.program.compile import compile_job
from lab.facade import Run
from lab.running.execution import Progress
from lab.running.simulation import check_fits, simulate_program
from lab.store.clusters import find_cluster
from lab.widgets.explorer import knobs as settings
from lab.widgets.explorer import status_text
from lab.widgets.explorer.latest_only_worker import Latest
from lab.widgets.explorer.panel import Message, Panel
from lab.widgets.explorer.run_in_background import Background, RunRequest
from lab.widgets.views.linked import Views

MEASURED, REPLAYED = "measured", "replayed"


@dataclass(frozen=True)
class State:
    """What the learner has set. job: obeys the rules, since each turn of a knob is checked. link: factor on the
    bandwidth of the cluster's links.
    """

    job: Job
    source: str = MEASURED
    link: float = 1.0

    @property
    def trained(self) -> Job:
        """The job without the hardware it is replayed on: settings that agree in this need one run."""
        return replace(self.job, hardware=Hardware())

    @property
    def cluster(self) -> Cluster:
        """With its links at the chosen speed. Raises `JobRefused`."""
        found = find_cluster(self.job.hardware.cluster)
        return scaled(found, inside_bandwidth=self.link, across_bandwidth=self.link)

    @property
    def cluster_words(self) -> str:
        speed = "" if self.link == 1 else f" with links {settings.link_text(self.link)}"
        return f"{self.job.hardware.cluster}{speed}"


class Explorer(ipywidgets.VBox):
    """Sliders above, views below. Runs are made in a thread, so the kernel is never blocked.

    `job` is what is set, `run` what was measured for it (None until then). A setting that the learner comes back to
    shows its run at once. `settle()` waits until nothing is under way.
    """

    def __init__(self, job: Job, knobs: tuple[str, ...], views: tuple[str, ...]) -> None:
        settings.check(job)
        self._knobs = settings.chosen(knobs)
        self._state = State(job)
        self._runs: dict[Job, Run] = {}
        self._failures: dict[Job, Exception] = {}
        self._lock = threading.RLock()
        self._described_at: tuple[tuple[Job, float], list[dict[str, Any]]] | None = None
        self._drawer: Latest[State] = Latest(self._draw)
        self._background = Background(self._on_event)
        self.panel = Panel(self._on_message)
        self.views = Views(views)
        super().__init__([self.panel, self.views])
        self.panel.tell(knobs=self._described())
        self._changed(rerun=True)
        threading.Thread(target=_load_torch, name="shardlab-load").start()

    @property
    def job(self) -> Job:
        return self._state.job

    @property
    def run(self) -> Run | None:
        return self._runs.get(self._state.trained)

    # -- what the learner does -----------------------------------------------------------------------------------

    def turn(self, name: str, value: Any) -> None:
        """Turns a knob as a slider does. An illegal wish changes nothing but the sentence that answers it."""
        with self._lock:
            before = self._state
            try:
                self._state = _turned(before, name, value)
            except JobRefused as error:
                self.panel.tell(said="", knobs=[])  # or the browser takes what follows for what it has already
                self.panel.tell(said=str(error), knobs=self._described())
                return
            if self._state != before:
                self._changed(rerun=self._state.trained != before.trained)
            self.panel.tell(said=settings.companions(before.job, self._state.job, name))

    def look_at(self, source: str) -> None:
        """Shows the times measured here, or those of the replay on the cluster."""
        with self._lock:
            self._state = replace(self._state, source=REPLAYED if source == REPLAYED else MEASURED)
            self._changed(rerun=False)

    def cancel(self) -> None:
        """Ends the run under way, or the one that would begin."""
        with self._lock:
            if self._state.trained not in self._runs:
                self._failures[self._state.trained] = RunCancelled("the run was cancelled")
            self._background.cancel()
            self._changed(rerun=False)

    def again(self) -> None:
        """Measures the same job once more."""
        with self._lock:
            self._runs.pop(self._state.trained, None)
            self._changed(rerun=True)

    def settle(self, timeout: float = 60.0) -> bool:
        """Waits until the run is made and drawn, at most `timeout` seconds for each; whether it came to that."""
        return self._drawer.settle(timeout) and self._background.settle(timeout) and self._drawer.settle(timeout)

    def _on_message(self, message: Message) -> None:
        match message:
            case {"kind": "wish", "name": str(name), "value": value}:
                self.turn(name, value)
            case {"kind": "source", "value": str(value)}:
                self.look_at(value)
            case {"kind": "cancel"}:
                self.cancel()
            case {"kind": "again"}:
                self.again()

    # -- what follows --------------------------------------------------------------------------------------------

    def _changed(self, rerun: bool) -> None:
        """Draws what is known of the state as it is, and has a run made where there is none."""
        if rerun:
            self._failures.pop(self._state.trained, None)
            if self._background.wanted != self._state.trained:
                self._background.cancel()  # what is under way is for settings that have been left
        self._drawer.ask(self._state)

    def _on_event(self, request: RunRequest, what: Progress | Run | Exception) -> None:
        """What comes of a run under way; called in its thread."""
        with self._lock:
            shown = request.job == self._state.trained
            if isinstance(what, Progress):
                if shown:
                    self.panel.tell(**status_text.progress(what))
                return
            if isinstance(what, Run):
                self._runs[request.job] = what
                self._failures.pop(request.job, None)
            elif not isinstance(what, RunCancelled):
                self._failures[request.job] = what
            if shown:
                self._drawer.ask(self._state)

    def _draw(self, state: State) -> None:
        """Shows the state. Called in the drawer's thread."""
        try:
            self._show(state)
        except Exception as error:  # the learner shall read it, and the next wish shall be drawn
            self.panel.tell(
                state="failed", headline=status_text.undrawn(error), busy=self._background.wanted is not None
            )

    def _show(self, state: State) -> None:
        """The best there is: a measurement or its replay, else the prediction.

        What is quick comes first. A run starts when its prediction stands: it takes every core there is.
        """
        with self._lock:
            run, made = self._runs.get(state.trained), self._made(state)
        shown, kind = self._best(state, run)
        self.views.begin(shown, runs=made)
        with self._lock:
            if state != self._state or self._runs.get(state.trained) is not run:
                return  # newer news follow
            if run is None and state.trained not in self._failures:
                self._background.want(state.trained)
            self.panel.tell(
                shown=kind, run="" if run is None else run.id, badge=status_text.badge(run), source=state.source,
                sources=_sources(state), **self._progress(state, shown, kind),
            )  # fmt: skip
            self.panel.tell(knobs=self._described())
        self.views.finish()
        if run is not None and state == self._state:
            self.views.complete()

    def _best(self, state: State, run: Run | None) -> tuple[Run, str]:
        if run is None:
            job, cluster = Job.from_options(state.job, steps=1), state.cluster
            check_fits(job, cluster)
            return Run.of(simulate_program(job, cluster, compile_job(job))), "predicted"
        return (run.replay(state.cluster), REPLAYED) if state.source == REPLAYED else (run, MEASURED)

    def _progress(self, state: State, shown: Run, kind: str) -> dict[str, Any]:
        """What goes on, for the panel."""
        failure = self._failures.get(state.trained)
        busy = kind == "predicted" and failure is None
        words = status_text.headline(shown, kind, state.cluster_words)
        if kind == "predicted" and failure is not None:
            name = "cancelled" if isinstance(failure, RunCancelled) else "failed"
            return {"state": name, "headline": f"{status_text.ending(failure)} {words}", "busy": False}
        return {"state": "running" if busy else kind, "headline": words, "busy": busy, "progress": 0.05}

    def _made(self, state: State) -> tuple[Run, ...]:
        """The runs made so far, the newest first, but before them that of the settings as they are."""
        runs = dict(reversed(self._runs.items()))
        first = runs.pop(state.trained, None)
        return (*([] if first is None else [first]), *runs.values())

    def _described(self) -> list[dict[str, Any]]:
        """The knobs as the browser draws them. Every stop of each is held against the rules: once for each setting."""
        job, link = setting = self._state.job, self._state.link
        if self._described_at is None or self._described_at[0] != setting:
            self._described_at = setting, [settings.described(knob, job, link) for knob in self._knobs]
        return self._described_at[1]


def _load_torch() -> None:
    """The first prediction of a new shape needs torch, which takes seconds to load: not when a slider waits for it."""
    import engine.prediction.op_templates.meta_templates  # noqa: F401


def _turned(state: State, name: str, value: Any) -> State:
    """What hangs on the cluster alone is seen in the replay, so that is what is shown then."""
    if name == "link_speed":
        return replace(state, link=settings.link_speed(value), source=REPLAYED)
    if name not in settings.knobs():
        raise JobRefused(f"there is no knob called {told(name)}: the knobs are {', '.join(settings.knobs())}.")
    job = settings.turned(state.job, name, value)
    return replace(state, job=job, source=REPLAYED if name == "cluster" else state.source)


def _sources(state: State) -> list[dict[str, str]]:
    return [
        {"value": MEASURED, "text": "Measured on this machine"},
        {"value": REPLAYED, "text": f"Replayed on {state.cluster_words}"},
    ]
