"""Words and numbers that several places show, written here once: names, units, definitions."""

from __future__ import annotations

import math
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.job.axes import AXES
from engine.job.bugs import BUGS
from engine.job.schedules import SCHEDULES
from engine.model.family import family_of
from engine.program.streams import STREAMS

if TYPE_CHECKING:
    from engine.job.job import Job, Model, Plan


def axis_order() -> tuple[str, ...]:
    """What there is besides computing, in the order of tables: axes, then what else there are streams for."""
    return tuple(dict.fromkeys((*AXES.names, *(stream.axis for stream in STREAMS if stream.axis))))


def axis_name(axis: str) -> str:
    """One of `axis_order` in words. Raises `Unknown`."""
    return AXES[axis].word if axis in AXES else STREAMS[axis].words


def mesh_words(plan: Plan) -> str:
    """2 data × 2 tensor × 1 pipeline."""
    return " × ".join(f"{degree} {AXES[axis].word}" for axis, degree in plan.degrees.items())


def stored_degrees(options: Mapping[str, Any]) -> dict[str, str]:
    """Axis → degree of the options of a stored job, whose further axes only the session that ran it may know."""
    own = {axis.name: str(options[axis.name]) for axis in AXES if axis.built_in}
    return own | dict(word.split("=") for word in options.get("axes", "").split(",") if word)


def stored_mesh_words(options: Mapping[str, Any]) -> str:
    """The same as `mesh_words`; the bare name of an axis that is not known."""
    degrees = stored_degrees(options)
    return " × ".join(f"{degree} {AXES[axis].word if axis in AXES else axis}" for axis, degree in degrees.items())


def schedule_words(name: str) -> str:
    """A schedule as people write it; the bare name of one that only the session that ran it knew."""
    return SCHEDULES[name].label if name in SCHEDULES else name


def fault_words(bug: str) -> str:
    """The mark of a run with a fault that was put into it: with the fault 'same-data'; "" where there is none."""
    return f"with the fault {bug!r}" if bug else ""


def fault_told(bug: str) -> str:
    """As sentences: Run with the fault 'same-data', put in on purpose. "" where there is none."""
    return f"Run {fault_words(bug)}, put in on purpose. {unseen_words(bug)}".rstrip() if bug else ""


def unseen_words(bug: str) -> str:
    """What tells a fault that the comparison with one process cannot see; "" of one that it can."""
    seen_in = BUGS[bug].seen_in if bug in BUGS else ""
    return f"The comparison with one process cannot see it; only the {seen_in} tell." if seen_in else ""


_SIZES = {"layers": "{} layers", "hidden": "hidden {}", "heads": "{} heads"}


def size_words(model: Model, **forms: str) -> str:
    """The sizes that say something about a model of its family: 4 layers, hidden 64, 4 heads, seq 64, vocab 256.

    forms: how to write some of them otherwise; "" leaves one out.
    """
    sizes = [(name, getattr(model, name)) for name in family_of(model).knobs]
    whole = {name: value for name, value in sizes if isinstance(value, int) and not isinstance(value, bool)}
    return ", ".join(filter(None, ((_SIZES | forms).get(name, f"{name} {{}}").format(n) for name, n in whole.items())))


LOSS_LIMIT = GRAD_NORM_LIMIT = PARAM_LIMIT = 1e-5
"""How far a run may be from one process while rounding has not grown, all relative; the rule is `lab.verdict.rule`."""

RESIDENT = (
    "Resident: what the system counts for a rank's process at the end of training, with Python, torch and shared"
    " libraries; the ledger counts tensors only."
)
WAITING_FOR_CORE = "time(computing) − processor time of the rank's main thread in it"


def shared_cores(processes: int, cores: int) -> str:
    """The note for a run with more processes than cores, else ""."""
    if processes <= cores:
        return ""
    return (
        f"{processes} processes shared {cores} processor core{'s' if cores > 1 else ''}: part of the measured time"
        " is waiting for a core. The replayed bubble is free of that."
    )


def power(value: float) -> str:
    """1e-05 as 1e-5."""
    return f"{value:.0e}".replace("e-0", "e-")


def percent(fraction: float | None) -> str:
    """A fraction of 1 in percent, with a decimal below 10 %; None is "unknown". Little is not told as nothing."""
    if fraction is None:
        return "unknown"
    if 0 < fraction < 0.0005:
        return "< 0.1 %"
    return f"{100 * fraction:.1f} %" if fraction < 0.0995 else f"{100 * fraction:.0f} %"


def loss_words(loss: float | None) -> str:
    """Four decimals. None, as a summary has it, is a loss that was no number."""
    return "not a number" if loss is None or not math.isfinite(loss) else f"{loss:.4f}"


def listed(words: Sequence[str]) -> str:
    """As in "one, two and three"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def degrees_words(degrees: Mapping[str, object]) -> str:
    """As in "dp=2 tp=1 pp=4"."""
    return " ".join(f"{axis}={degree}" for axis, degree in degrees.items())


def unit(largest: float) -> tuple[str, float]:
    """(name, bytes) of the unit in which `largest` has one to three digits before the point."""
    for name, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if largest >= size:
            return name, size
    return "bytes", 1.0


def nbytes(value: float) -> str:
    """Bytes in words: 512 B, 4.10 MB (powers of ten)."""
    for name in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or name == "TB":
            return f"{value:.0f} {name}" if name == "B" else f"{value:.3g} {name}"
        value /= 1000
    raise AssertionError


def seconds(value: float) -> str:
    """A time in words: 85 µs, 3.2 ms, 1.4 s."""
    for name, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 0.9995 or name == "µs":
            return f"{value * scale:.3g} {name}"
    raise AssertionError


def longer(difference: float) -> str:
    """A difference in seconds in words: 9 ms more, 85 µs less."""
    return f"{seconds(abs(difference))} {'more' if difference >= 0 else 'less'}"


def rate(value: float, unit: str) -> str:
    """A rate in words: 312 TFLOP/s, 25 GB/s."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def parameter_count(count: int) -> str:
    """174.6 billion parameters, 0.23 million parameters."""
    return f"{count / 1e9:.4g} billion parameters" if count >= 1e9 else f"{count / 1e6:.2f} million parameters"


def one_line(text: str) -> str:
    """`text` as one line of what can be seen: no control characters, none that turn the direction of writing."""
    return " ".join("".join(c for c in text if c.isspace() or unicodedata.category(c)[0] != "C").split())


def command_line(job: Job, *, command: str = "lab run", parity: bool = True, program: str = "") -> str:
    """`lab run --dp 2 --zero 1`: what starts a job, only what differs from the defaults. program: the file of one
    written by hand."""
    usual, words = type(job)().options(), command.split()
    for name, value in job.options().items():
        if value != usual[name]:
            words += _option("--" + name.replace("_", "-"), value)
    words += ["--program", program] if program else []
    return shlex.join(words if parity else [*words, "--no-parity"])


def _option(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, tuple):
        return [flag, ",".join(map(str, value))]
    return [flag, str(value)]
