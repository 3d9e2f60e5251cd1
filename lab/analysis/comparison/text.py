"""What a comparison says in words: one sentence for each run after the first, every reason read from the numbers.

A reason is the largest contribution: of the categories to a difference in memory, of a step's parts to one in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lab.analysis import CAUSES, PART_NAMES
from lab.analysis.comparison.lines import CATEGORY_NAMES, LETTERS, MOST_NAMED, Line, lines, settings
from lab.analysis.comparison.run_metrics import facts, measured
from lab.analysis.recorded_run import RecordedRun
from lab.wording import LOSS_LIMIT, axis_name, axis_order, listed, nbytes, percent, power, seconds

SMALL = 0.005
"""Relative differences below this are not worth a word."""
_MUCH = 0.2  # of a difference: from here on a second contribution is named beside the first
_WHERE = {"tie": "between the tied ends", "world": "among all ranks"}


def explain(runs: Sequence[RecordedRun]) -> list[str]:
    """For each run after the first: what was set differently, what came out, and why."""
    found = {line.key: line for line in lines(runs)}
    return [_sentence(runs, found, i) for i in range(1, len(runs))]


def _sentence(runs: Sequence[RecordedRun], found: Mapping[str, Line], i: int) -> str:
    did = [words for words in (_memory(found, i), *_bytes(found, i)) if words]
    did = did or ["keeps peak memory and bytes sent as they are"]
    rest = [words for words in (_time(runs, found["step_seconds"], i), _loss(runs, found, i)) if words]
    return f"{_lead(runs[0], runs[i], LETTERS[i])} {'; '.join([listed(did), *rest])}."


# -- what was set differently


def _lead(first: RecordedRun, run: RecordedRun, letter: str) -> str:
    """The beginning of the sentence, up to its verb."""
    differ = _told(first, run, settings((first, run)))
    contrast = "" if measured(first) == measured(run) else f"{_how(run)} instead of {_how(first)}"
    if not differ:
        return f"{letter} is of the same job as {LETTERS[0]}, {contrast + ', ' if contrast else ''}and"
    named = [f"{name}={_value(values[0])} → {_value(values[1])}" for name, values in differ.items()]
    more = len(named) - MOST_NAMED
    named = named if more <= 1 else [*named[:MOST_NAMED], f"{more} more settings"]
    return f"{letter} with {listed(named)}{f', {contrast},' if contrast else ''}"


def _told(first: RecordedRun, run: RecordedRun, differ: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Without what is no choice: a simulation is of one step, and on a cluster."""
    idle = {"steps"} if not (measured(first) and measured(run)) else set()
    idle |= {"cluster"} if measured(first) != measured(run) else set()
    return {name: values for name, values in differ.items() if name not in idle}


def _how(run: RecordedRun) -> str:
    return "measured" if measured(run) else f"simulated on {run.summary['cluster']}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value in (None, "") else str(value)


# -- what came out


def _memory(found: Mapping[str, Line], i: int) -> str:
    """ "cuts peak memory of the fullest rank by 38 % (1.2 MB, mostly optimizer state)"."""
    line = found.get("memory")
    change = line and line.difference(i)
    if not line or not change or not _worth_telling(line, i):
        return ""
    parts = {name.removesuffix(", peak"): _change(found, f"memory_{key}", i) for key, name in CATEGORY_NAMES.items()}
    why = [nbytes(abs(change)), _mostly(parts, change), _against(parts, change)]
    relative = line.relative(i)
    by = why[0] if relative is None else f"{percent(abs(relative))} ({', '.join(filter(None, why))})"
    return f"{'raises' if change > 0 else 'cuts'} peak memory of the fullest rank by {by}"


def _mostly(parts: Mapping[str, float], change: float) -> str:
    """The one or two largest of the parts that go the way of the whole change."""
    along = {name: abs(part) for name, part in parts.items() if part * change > 0}
    named, total = _largest(along), sum(along.values())
    if not named:
        return ""
    most = "most" if sum(along[name] for name in named) > total / 2 else "the largest part"
    return f"{'all' if len(named) == len(along) else most} of it {listed(named)}"


def _against(parts: Mapping[str, float], change: float) -> str:
    """The largest of those that go the other way, if they are not small beside the whole change."""
    against = {name: abs(part) for name, part in parts.items() if part * change < 0 and abs(part) > _MUCH * abs(change)}
    named = _largest(against)
    by = nbytes(sum(against[name] for name in named))
    return f"while {listed(named)} {'grew' if change < 0 else 'shrank'} by {by}" if named else ""


def _largest(sizes: Mapping[str, float]) -> list[str]:
    """The largest, and the second if it is not small beside all of them."""
    order = sorted(sizes, key=lambda name: -sizes[name])
    return order[:1] + [name for name in order[1:2] if sizes[name] > _MUCH * sum(sizes.values())]


def _bytes(found: Mapping[str, Line], i: int) -> list[str]:
    """What changes most on the axes, two at most; what is a trifle beside all that is sent is left out."""
    axes = {axis: found[f"bytes_{axis}"] for axis in axis_order() if f"bytes_{axis}" in found}
    total = max(sum(line.values[j] or 0 for line in axes.values()) for j in (0, i)) if axes else 0
    changed = {axis: abs(line.difference(i) or 0) for axis, line in axes.items()}
    most = sorted((axis for axis in axes if changed[axis] > SMALL * total), key=lambda axis: -changed[axis])[:2]
    return [_sent(axis, axes[axis].values[0] or 0, axes[axis].values[i] or 0) for axis in most]


def _sent(axis: str, before: float, after: float) -> str:
    where = _WHERE.get(axis, f"on the {axis_name(axis)} axis")
    if not after:
        return f"sends nothing {where} ({nbytes(before)} before)"
    if not before:
        return f"sends {nbytes(after)} {where} (nothing before)"
    return f"sends {after / before:.3g}× the bytes {where}"


def _time(runs: Sequence[RecordedRun], line: Line, i: int) -> str:
    """ "the step takes 12 % longer (2.1 ms), most of it waiting for bytes on their way"."""
    change, relative, noise = line.difference(i), line.relative(i), line.noise
    if not change or relative is None or not _worth_telling(line, i):
        return "the step takes as long"
    factor = (
        f"{1 + relative:.2g}× as long"
        if relative >= 1
        else f"{percent(abs(relative))} {'longer' if change > 0 else 'less time'}"
    )
    said = f"the step takes {factor} ({seconds(abs(change))})"
    within = line.within_noise(i)
    if within is None:
        return f"{said}, but of one timed step nobody can tell whether that is noise"
    if within:
        return (
            f"{said}, within noise: the steps of one run differ by {seconds(max(n or 0 for n in (noise[0], noise[i])))}"
        )
    return said + _reason(runs, i, change)


def _reason(runs: Sequence[RecordedRun], i: int, change: float) -> str:
    """The part of the typical step that contributes most, how much of the change it is, and what was waited for."""
    before, after = facts(runs[0]), facts(runs[i])
    parts = _differences(before.parts, after.parts)
    most = max(parts, key=lambda name: parts[name] * change, default="")
    if not most or parts[most] * change <= 0:
        return ""
    how = "most of it" if parts[most] / change > 0.5 else "the largest part of it"
    waits = _differences(before.waits(most), after.waits(most))
    what = max(waits, key=lambda name: waits[name] * change, default="")
    told = f": {what}" if what and waits[what] / parts[most] > 0.5 else ""
    cause = f" ({most}{told})" if most in CAUSES else ""
    return f", {how} {PART_NAMES[most]}{cause}, {seconds(abs(parts[most]))} a rank"


def _differences(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: after.get(name, 0.0) - before.get(name, 0.0) for name in {**before, **after}}


def _loss(runs: Sequence[RecordedRun], found: Mapping[str, Line], i: int) -> str:
    """Whether the same was learned, where both runs are measured and got equally far."""
    line = found.get("loss")
    relative = line.relative(i) if line else None
    last = [facts(run).last_step for run in (runs[0], runs[i])]
    if line is None or relative is None or last[0] != last[1] or not (measured(runs[0]) and measured(runs[i])):
        return ""
    if line.within_noise(i):
        return f"the loss of step {last[0]} is the same to {power(LOSS_LIMIT)}"
    return f"the loss of step {last[0]} is {percent(abs(relative))} {'higher' if relative > 0 else 'lower'}"


def _worth_telling(line: Line, i: int) -> bool:
    relative = line.relative(i)
    return relative is None or abs(relative) >= SMALL


def _change(found: Mapping[str, Line], key: str, i: int) -> float:
    line = found.get(key)
    return (line.difference(i) or 0.0) if line else 0.0
