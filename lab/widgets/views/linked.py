"""Views of one run that share the chosen rank, the cursor and the theme."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import ipywidgets

from lab.facade import Run
from lab.views.figures.style.palette import Theme
from lab.views.timeline import TimelineWidget, timeline_of_run
from lab.widgets.views.plot import Plot
from lab.widgets.views.rank_choice import RankChoice
from lab.widgets.views.view_registry import DRAWINGS, Click, Scene, refuse_unknown

DEFAULT = ("timeline", "grid")


class Views(ipywidgets.VBox):
    """A timeline and figures, one below the other. `show` puts another run into them."""

    def __init__(self, views: tuple[str, ...] = DEFAULT) -> None:
        refuse_unknown(views)
        self._scene: Scene | None = None
        self._lock = threading.RLock()  # the kernel's thread chooses ranks while another draws runs
        self.choice = RankChoice()
        self.timeline = TimelineWidget() if "timeline" in views else None
        self.plots = {name: Plot(name) for name in views if name != "timeline"}
        super().__init__([self.choice, *(self.timeline if name == "timeline" else self.plots[name] for name in views)])
        self.choice.observe(lambda change: self.select(change["new"]), "rank")
        if self.timeline is not None:
            self.timeline.observe(lambda change: self.select(change["new"]), "selected_rank")
            self.timeline.observe(lambda change: self._move_cursor(change["new"]), "cursor_ms")
        for name, plot in self.plots.items():
            plot.on_click(self._on_click(name))

    @property
    def rank(self) -> int | None:
        """The chosen rank, marked in every view."""
        return None if self._scene is None else self._scene.rank

    def show(
        self, run: Run, *, predicted: Run | None = None, runs: tuple[Run, ...] = (), step: int | None = None
    ) -> None:
        """Draws `run` in every view. predicted: laid over the timeline. runs: made before, for the bubble's curve."""
        self.begin(run, predicted=predicted, runs=runs, step=step)
        self.finish()
        self.complete()

    def begin(
        self, run: Run, *, predicted: Run | None = None, runs: tuple[Run, ...] = (), step: int | None = None
    ) -> None:
        """The quick part of `show`: the timeline."""
        data = None if self.timeline is None else _timeline(run, predicted, step)
        with self._lock:
            rank = self.rank if self.rank is not None and self.rank < run.job.world_size else None
            self._scene = Scene(run, rank, None, runs)
            self.choice.offer(run.job, rank)
            self._show_timeline(data, rank)

    def _show_timeline(self, data: dict[str, Any] | None, rank: int | None) -> None:
        if self.timeline is None or data is None:
            return
        with self.timeline.hold_sync():
            self.timeline.selected_rank = rank
            self.timeline.set_trait("window", None)
            self.timeline.selected_op = self.timeline.cursor_ms = None
            self.timeline.data = data

    def finish(self) -> None:
        """The rest of `show`: the figures, in the page's theme."""
        with self._lock:
            self._draw(*self.plots)

    def complete(self) -> None:
        """The figures in the other theme."""
        for plot in self.plots.values():
            with self._lock:
                plot.complete()

    def select(self, rank: int | None) -> None:
        """Marks a rank in every view; None, or one that the run does not have, marks none."""
        with self._lock:
            scene = self._scene
            if scene is None:
                return
            rank = rank if rank is not None and 0 <= rank < scene.run.job.world_size else None
            self._scene = replace(scene, rank=rank)
            self.choice.rank = rank
            if self.timeline is not None:
                self.timeline.selected_rank = rank
            if rank != scene.rank:
                self.finish()
                self.complete()

    def _move_cursor(self, at_ms: float | None) -> None:
        with self._lock:
            if self._scene is not None and "activity" in self.plots and (at_ms is None or math.isfinite(at_ms)):
                self._scene = replace(self._scene, at_ms=at_ms)
                self._draw("activity")

    def _draw(self, *names: str) -> None:
        scene = self._scene
        assert scene is not None
        for name in names:
            drawing = DRAWINGS[name]

            def draw(theme: Theme, drawing: Any = drawing) -> Any:
                return drawing.draw(scene, theme)

            simulated = scene.run.status == "simulated"
            how = drawing.how_simulated if simulated and drawing.how_simulated else drawing.how
            self.plots[name].show(draw, scene.run.id, how)

    def _on_click(self, name: str) -> Any:
        def on_click(click: Click) -> None:
            with self._lock:
                if self._scene is not None:
                    rank = DRAWINGS[name].pick(self._scene, click)
                    self.select(None if rank == self._scene.rank else rank)

        return on_click


def _timeline(run: Run, predicted: Run | None, step: int | None) -> dict[str, Any]:
    """What the timeline draws of a run. Raises `ValueError` for a prediction of another job."""
    if predicted is not None and (predicted.job.plan, predicted.job.model) != (run.job.plan, run.job.model):
        raise ValueError(
            f"predicted={predicted.id} is of another model or plan than {run.id}: name a replay of this run."
        )
    return timeline_of_run(run, step, None if predicted is None else predicted.recording)
