"""What figures, reports and exports take as a run; `lab.store.stored_run.StoredRun` is one."""

from __future__ import annotations

from typing import Any, Protocol

from engine.job.job import Job
from engine.program.program import Program
from engine.recording.tables import Recording


class HasRecording(Protocol):
    """What a figure needs of a run."""

    @property
    def job(self) -> Job: ...
    @property
    def summary(self) -> dict[str, Any]: ...
    @property
    def recording(self) -> Recording: ...


class RecordedRun(HasRecording, Protocol):
    """With what says which run it is, what it ran, and how it ended."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def program(self) -> Program: ...
    @property
    def steps(self) -> list[dict[str, Any]]: ...
