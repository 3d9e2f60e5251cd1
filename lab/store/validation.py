"""Whether what stands in a run's folder can be used at all: it may be of another version, edited, or damaged.

Checked where it is read, so that whoever shows a run can rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from engine.loading import import_whole

if TYPE_CHECKING:
    import pydantic


def readable_job(options: Mapping[str, Any]) -> dict[str, Any]:
    """The job of a run as `Job.options` gives it, with what was not said as by default.

    Raises `ValueError` for one that no run can have had. Whether its text still exists does not matter any more.
    """
    import_whole("engine.job.job")
    from engine.job import rules
    from engine.job.job import Job

    if not options:
        raise ValueError("run.json names no job")
    try:
        job = Job.from_options(**options)
        rules.check(replace(job, training=replace(job.training, text=None)))
        rules.check_ranks(job)
    except ValueError as error:
        raise ValueError(f"the job in run.json cannot be read: {error}") from None
    return job.options()


class _Finite:
    """NaN and infinity are no JSON, and no figure can draw them."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"allow_inf_nan": False}


@dataclass(frozen=True)
class _Step(_Finite):
    step: int
    seconds: float
    loss: float | None = None
    grad_norm: float | None = None
    tokens_per_second: float | None = None


@dataclass(frozen=True)
class _Bubble(_Finite):
    measured: float | None
    replayed: float | None
    formula: float | None


@dataclass(frozen=True)
class _Held(_Finite):
    rank: int
    params: int
    grads: int
    optimizer: int
    activations_peak: int
    gathered_peak: int
    buffers_peak: int
    total_peak: int


@dataclass(frozen=True)
class _Memory(_Finite):
    per_rank: list[_Held]
    predicted_per_rank: list[_Held]


@dataclass(frozen=True)
class _Sent(_Finite):
    axis: str
    op: str
    count: int
    logical_bytes: int
    wire_bytes: int
    predicted_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Summary(_Finite):
    """What figures and tables ask of `summary.json`; there may be more in it."""

    steps: list[_Step]
    bubble: _Bubble
    overlap: dict[str, float | None]
    memory: _Memory
    communication: list[_Sent]
    parity: dict[str, Any]
    time_to_ranks_ready_s: float | None
    wall_s: float | None


@dataclass(frozen=True, kw_only=True)
class _Simulated(_Summary):
    cluster: str
    fits: bool
    step_seconds: float
    mfu: float | None
    hfu: float | None
    tflops_per_gpu: float | None


@lru_cache(maxsize=2)
def _reader(kind: type[_Summary]) -> pydantic.TypeAdapter[_Summary]:
    import_whole("pydantic")
    import pydantic  # some 30 ms, so not before it is needed

    return pydantic.TypeAdapter(kind)


def first_fault(error: pydantic.ValidationError, within: int = 0) -> str:
    """The first field that is wrong, and why. within: outer parts of its place that the reader need not be told."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"][within:]))
    return f"{where + ': ' if where else ''}{first['msg']}"


def check_summary(summary: Mapping[str, Any], *, simulated: bool = False) -> None:
    """Raises `ValueError` that names the first thing in a `summary.json` that is missing or of another kind."""
    import pydantic

    try:
        _reader(_Simulated if simulated else _Summary).validate_python(summary)
    except pydantic.ValidationError as error:
        raise ValueError(first_fault(error)) from None
