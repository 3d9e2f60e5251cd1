"""What a report needs to know of a run."""

from __future__ import annotations

from typing import Any, Protocol

from lab.analysis.recorded_run import RecordedRun


class Info(Protocol):
    """The part of `run.json` a report shows."""

    @property
    def command(self) -> tuple[str, ...]: ...
    @property
    def created(self) -> str: ...
    @property
    def environment(self) -> dict[str, Any]: ...
    @property
    def backend(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def backend_reason(self) -> str: ...
    @property
    def resident_bytes(self) -> tuple[int, ...]: ...


def is_simulated(run: Reportable) -> bool:
    """Whether its times were worked out for a described cluster and nothing was trained."""
    return run.status == "simulated"


class Reportable(RecordedRun, Protocol):
    """What a report needs of a run; `lab.store.stored_run.StoredRun` has it."""

    @property
    def info(self) -> Info: ...
