"""What came out of one run as numbers by key, and how far apart the run's own steps are in each. Pure functions.

A measured step never takes the same time twice, so every quantity that was read from a clock has its noise: how far
apart it is in the run's own steps, from the 10th to the 90th percentile, its first step left out as warm-up. What a
simulation or replay says has none. With a single step left nobody can tell, and the noise is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from engine.program.kinds import names_where
from lab import analysis
from lab.analysis.memory import KEY
from lab.analysis.recorded_run import RecordedRun
from lab.typical_seconds import typical_seconds
from lab.verdict import MULTIPLE
from lab.wording import LOSS_LIMIT, axis_order

MOST_SAMPLES = 5
"""Steps whose idle times are looked at to tell noise; every one of them takes some 20 ms."""

_IDLE = tuple(f"idle_{cause}" for cause in analysis.CAUSES)
_ON_A_CLOCK = ("step_seconds", "tokens_per_second", "bubble", *_IDLE, *(f"overlap_{axis}" for axis in axis_order()))

Value = float | None


@dataclass(frozen=True)
class Facts:
    """One run: values by key of a line (see `lab.analysis.comparison.lines`), and the noise of those that have any.

    shares: of all ranks' time in the typical step, by `analysis.PARTS`; empty if no step was recorded. awaited: that of
    idle time by (cause, what is awaited).
    """

    values: Mapping[str, Value]
    noise: Mapping[str, Value]
    shares: Mapping[str, float]
    awaited: Mapping[tuple[str, str], float]
    last_step: int

    @property
    def parts(self) -> dict[str, float]:
        """Seconds a rank by part, adding up to the step time."""
        return {name: share * self._step for name, share in self.shares.items()}

    def waits(self, cause: str) -> dict[str, float]:
        """Seconds a rank stands idle for a cause, by what is awaited."""
        return {of: share * self._step for (why, of), share in self.awaited.items() if why == cause}

    @property
    def _step(self) -> float:
        return self.values["step_seconds"] or 0.0


def facts(run: RecordedRun) -> Facts:
    """The facts of a run with at least one step, found once and kept as long as the run is."""
    if run not in _known:
        _known[run] = _facts(run)
    return _known[run]


_known: WeakKeyDictionary[RecordedRun, Facts] = WeakKeyDictionary()


def measured(run: RecordedRun) -> bool:
    """Whether its times were read from a clock."""
    return run.status != "simulated"


def step_seconds(run: RecordedRun) -> float:
    """The time of a step; of a real run, which has one at least, that of the typical one."""
    found = typical_seconds(run.steps) if measured(run) else float(run.summary["step_seconds"])
    assert found is not None
    return found


def bubble(run: RecordedRun) -> Value:
    """As measured in a real run, as replayed in a simulated one."""
    found: Value = run.summary["bubble"]["measured" if measured(run) else "replayed"]
    return found


def fullest(run: RecordedRun) -> dict[str, int]:
    """The peaks of the rank with the highest total, a row as in the summary's `memory`; {} if none was recorded."""
    rows = run.summary["memory"]["per_rank"]
    return dict(max(rows, key=lambda row: row["total_peak"])) if rows else {}


def bytes_by_axis(run: RecordedRun) -> dict[str, int]:
    """Logical bytes that the first rank of each axis sends in a step; what it receives counts where it is sent."""
    sent: dict[str, int] = {}
    received = names_where(lambda kind: kind.receives)
    for row in run.summary["communication"]:
        if row["op"] not in received:
            sent[row["axis"]] = sent.get(row["axis"], 0) + row["logical_bytes"]
    return sent


def spread(values: Sequence[float]) -> Value:
    """From the 10th to the 90th percentile; None of fewer than two values."""
    low, high = np.quantile(values, (0.1, 0.9)) if len(values) > 1 else (0.0, 0.0)
    return float(high - low) if len(values) > 1 else None


def _facts(run: RecordedRun) -> Facts:
    step = analysis.typical_step(run.recording)
    shares = {} if step is None else analysis.step_shares(run.recording, step)
    awaited = {} if step is None else analysis.idle_by_awaited(run.recording, step)
    last = run.steps[-1]
    tokens = run.job.training.batch * run.job.model.seq
    took, held, sent = step_seconds(run), fullest(run), bytes_by_axis(run)
    values: dict[str, Value] = {
        "step_seconds": took, "bubble": bubble(run), **_idle(shares), "loss": last["loss"],
        "tokens_per_second": tokens / took if took else None, "memory": held.get("total_peak"),
        **{f"memory_{category}": held.get(key) for category, key in KEY.items()},
        **{f"bytes_{axis}": sent.get(axis, 0) for axis in axis_order()},
        **{f"overlap_{axis}": run.summary["overlap"].get(axis) for axis in axis_order()},
    }  # fmt: skip
    noise = _noise(run, tokens) if measured(run) else {}
    if last["loss"] is not None:
        floor = (run.summary["parity"].get("floor") or {}).get("loss") or 0.0
        noise["loss"] = max(LOSS_LIMIT * abs(last["loss"]), MULTIPLE * floor)  # what rounding may do to it
    return Facts(values, noise, shares, awaited, last["step"])


def _idle(shares: Mapping[str, float]) -> dict[str, float]:
    return {key: shares[cause] for key, cause in zip(_IDLE, analysis.CAUSES, strict=True) if shares}


def _noise(run: RecordedRun, tokens: int) -> dict[str, Value]:
    """Of all keys that a clock decides."""
    times = [row["seconds"] for row in run.steps[1:]]
    samples = [_sample(run, step) for step in _sampled(run)]
    known: dict[str, list[float]] = {key: [one[key] for one in samples if key in one] for key in _ON_A_CLOCK}
    known |= {"step_seconds": times, "tokens_per_second": [tokens / time for time in times if time]}
    return {key: spread(values) for key, values in known.items()}


def _sampled(run: RecordedRun) -> list[int]:
    """Some of the timed steps, evenly spaced. The last of a run that goes on may be half read, so it is left out."""
    there = set(analysis.recorded_steps(run.recording))
    steps = [int(row["step"]) for row in run.steps[1:] if row["step"] in there]
    steps = steps[:-1] if run.status == "running" else steps
    every = max(1, -(-len(steps) // MOST_SAMPLES))
    return steps[::every]


def _sample(run: RecordedRun, step: int) -> dict[str, float]:
    """What the clock says of one step."""
    shares = analysis.step_shares(run.recording, step)
    hidden = analysis.overlap(run.recording, step)
    idle = _idle(shares)
    return {"bubble": sum(idle.values()), **idle, **{f"overlap_{axis}": share for axis, share in hidden.items()}}
