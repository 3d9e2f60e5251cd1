"""What figures take as a run."""

from __future__ import annotations

from typing import Any, Protocol

from engine.job import Job
from engine.recording import Recording


class HasRecording(Protocol):
    """What a figure needs of a run."""

    @property
    def job(self) -> Job: ...
    @property
    def summary(self) -> dict[str, Any]: ...
    @property
    def recording(self) -> Recording: ...
