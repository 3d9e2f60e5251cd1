"""Live progress of a run on stderr: a moving line in a terminal, plain lines in a log."""

from __future__ import annotations

import math
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar

from lab.running.execution import Progress
from lab.wording import loss_words

PLAIN_LINES = 20  # at most about this many steps are reported where lines cannot be overwritten


class Display:
    """Use as a context and as the `on_progress` of a run. Remembers the id of the run."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.run_id: str | None = None
        self._bar: Bar | None = None
        if self.console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn())
            self._bar = Bar(*columns, console=self.console, transient=True)

    def __enter__(self) -> Display:
        if self._bar is not None:
            self._bar.start()
            self._bar.add_task("loading torch", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        self.run_id = progress.run_id
        done = progress.step + 1 if progress.step is not None else None
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, description=words(progress), total=progress.steps, completed=done)
        elif done is None or done == progress.steps or done % math.ceil(progress.steps / PLAIN_LINES) == 0:
            where = f"step {done}/{progress.steps}  " if done is not None else ""
            self.console.print(where + words(progress), highlight=False, soft_wrap=True)


class Notice:
    """Says on stderr that something takes a while and, in a terminal, what it does just now: call it with that.

    logged: a log has a line of it too, for what always takes a while.
    """

    def __init__(self, doing: str, console: Console | None = None, *, logged: bool = True) -> None:
        self.doing, self.console, self.logged = doing, console or Console(stderr=True), logged
        self._status = self.console.status(doing)

    def __enter__(self) -> Notice:
        if self.console.is_terminal:
            self._status.start()
        elif self.logged:
            self.console.print(self.doing, highlight=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._status.stop()

    def __call__(self, now: str) -> None:
        self._status.update(f"{self.doing}\n{now}")


def words(progress: Progress) -> str:
    """What the run is doing, as the line under the progress bar says it."""
    count = f"{progress.world_size} process{'es' if progress.world_size > 1 else ''}"
    match progress.phase:
        case "starting":
            return f"starting {count} (the first time, torch is loaded too)"
        case "ready":
            return f"{count} connected"
        case "finishing":
            return "putting the numbers together"
    return f"loss {loss_words(progress.loss)}  {progress.tokens_per_second:,.0f} tokens/s"
