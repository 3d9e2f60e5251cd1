"""Several runs in one figure, one colour and symbol a run everywhere. names: of each, shown as they are; a title calls
a run what its name says up to the first colon.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from lab.analysis.comparison.run_metrics import bytes_by_axis, facts, fullest
from lab.analysis.recorded_run import RecordedRun
from lab.verdict import Distances, shown_traces, verdict_of
from lab.views.figures.comparison.communication_compared import communication_compared_figure
from lab.views.figures.comparison.idle_compared import idle_compared_figure
from lab.views.figures.comparison.losses import Losses, losses_figure
from lab.views.figures.comparison.memory_compared import memory_compared_figure
from lab.views.figures.style.palette import Theme
from lab.wording import LOSS_LIMIT


def memory_compared(runs: Sequence[RecordedRun], names: Sequence[str], theme: Theme = "light") -> go.Figure:
    """Peak bytes of each run's fullest rank by category."""
    return memory_compared_figure([fullest(run) for run in runs], names, theme=theme)


def losses(runs: Sequence[RecordedRun], names: Sequence[str], theme: Theme = "light") -> go.Figure:
    """The loss of each step, and how far it is from that of one process where the run was compared with one."""
    return losses_figure([_losses(run) for run in runs], names, theme=theme)


def _losses(run: RecordedRun) -> Losses:
    step, loss, reference = (
        run.recording.metrics[name].to_numpy().astype(float) for name in ("step", "loss", "reference_loss")
    )
    limit = np.full(len(step), LOSS_LIMIT)
    found: Distances | None = getattr(run, "distances", None)
    if found is not None:
        limit = np.array(next(trace.limit for trace in shown_traces(found) if trace.quantity == "loss"))
    return Losses(step, loss, reference, limit, verdict_of(run.summary.get("parity") or {}).badge.state)


def idle_compared(runs: Sequence[RecordedRun], names: Sequence[str], theme: Theme = "light") -> go.Figure:
    """Shares of each run's typical step: computing, and idle by cause."""
    return idle_compared_figure([facts(run).shares for run in runs], names, theme=theme)


def communication_compared(runs: Sequence[RecordedRun], names: Sequence[str], theme: Theme = "light") -> go.Figure:
    """Bytes that each run sends on each axis."""
    return communication_compared_figure([bytes_by_axis(run) for run in runs], names, theme=theme)
