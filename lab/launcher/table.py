"""The table of launches: which jobs somebody wished to be run, in which order, and what became of each.

Any number of windows, notebooks and threads may use it at once: every change is one statement, and so happens whole or
not at all. What is read is checked again, whoever wrote it.
"""

from __future__ import annotations

import time
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine.job.job import Job
from lab.launcher.database import LaunchFile
from lab.store.folder import Owner
from lab.store.store import StoreError

if TYPE_CHECKING:
    import pydantic

State = Literal["queued", "starting", "running", "finished", "failed", "stopped", "refused"]
BUSY = ("starting", "running")
ACTIVE = ("queued", *BUSY)
CANCELLED_EARLY = "cancelled before it began"

_SHOWN = "id, name, job, parity, state, run_id, steps_done, message, created, ended, cancel_asked IS NOT NULL"
_FIELDS = (
    "id", "name", "job", "parity", "state", "run_id", "steps_done", "message", "created", "ended", "cancelling",
)  # fmt: skip
_IS_BUSY, _IS_ACTIVE = f"state IN {BUSY}", f"state IN {ACTIVE}"  # a tuple of words is written as SQL writes it


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A wish to run `job`, and what became of it.

    state: "queued", "starting" its processes, "running"; then "finished", "failed", "stopped" by the user or "refused"
    as a job that cannot run. run_id: its run in the store, None until that has begun. steps_done counts whole steps.
    message: why it ended as it did, or why it still waits. created, ended: ISO 8601 in UTC; ended is None until then.
    cancelling: somebody asked to stop it. name: what its wisher calls it.
    """

    id: int
    job: Job
    parity: bool
    state: State
    run_id: str | None = None
    message: str = ""
    created: str
    ended: str | None = None
    name: str = ""
    steps_done: int = 0
    cancelling: bool = False

    @property
    def active(self) -> bool:
        """Whether it is still to end."""
        return self.state in ACTIVE


class LaunchTable:
    """The launches in `root`. Every method raises `StoreError` in words if the file cannot be used.

    A row that cannot be understood is left out of lists; whoever asks for it by its number hears why.
    """

    def __init__(self, root: Path) -> None:
        self._file = LaunchFile(root)
        self._do = self._file.do

    # -- wishing ---------------------------------------------------------------------------------------------

    def add(self, job: Job, parity: bool, name: str) -> int:
        """Puts a job at the end of the queue; its number."""
        adding = "INSERT INTO launches (name, job, parity, created) VALUES (?, ?, ?, ?) RETURNING id"
        while not (rows := self._do(adding, name, job.to_toml(), parity, _now())):
            self._file.make()
        return int(rows[0][0])

    def cancel(self, number: int) -> None:
        """Ends a launch that waits, and asks for the end of one under way; one that has ended stays as it is."""
        early = "UPDATE launches SET state = 'stopped', message = ?, ended = ? WHERE id = ? AND state = 'queued'"
        self._do(early, CANCELLED_EARLY, _now(), number)
        ask = f"UPDATE launches SET cancel_asked = ? WHERE id = ? AND cancel_asked IS NULL AND {_IS_BUSY}"
        self._do(ask, time.time(), number)

    # -- looking ---------------------------------------------------------------------------------------------

    def get(self, number: int) -> Launch | None:
        """Raises `StoreError` too if the row is damaged."""
        rows = self._do(f"SELECT {_SHOWN} FROM launches WHERE id = ?", number)
        try:
            return _launch(rows[0]) if rows else None
        except ValueError as error:
            raise StoreError(f"launch {number} in {self._file.path} cannot be read: {error}") from None

    def newest(self, limit: int) -> list[Launch]:
        return _readable(self._do(f"SELECT {_SHOWN} FROM launches ORDER BY id DESC LIMIT ?", limit))

    def active(self) -> list[Launch]:
        """What is under way or waits, in the order in which it comes."""
        return _readable(self._do(f"SELECT {_SHOWN} FROM launches WHERE {_IS_ACTIVE} ORDER BY id"))

    def carrying_out(self, run_id: str) -> Launch | None:
        """The launch under way whose run this is."""
        rows = self._do(f"SELECT {_SHOWN} FROM launches WHERE run_id = ? AND {_IS_BUSY}", run_id)
        return next(iter(_readable(rows)), None)

    def any_active(self) -> bool:
        return bool(self._do(f"SELECT 1 FROM launches WHERE {_IS_ACTIVE} LIMIT 1"))

    def waiting(self) -> bool:
        return bool(self._do("SELECT 1 FROM launches WHERE state = 'queued' LIMIT 1"))

    def last_was_stopped(self) -> bool:
        """Whether the launch that ended last was stopped by the user."""
        rows = self._do("SELECT state FROM launches WHERE ended IS NOT NULL ORDER BY ended DESC LIMIT 1")
        return rows == [("stopped",)]

    # -- working ---------------------------------------------------------------------------------------------

    def take(self, worker: Owner) -> Launch | None:
        """The launch whose turn it is, now `worker`'s to carry out. A row that cannot be read is refused."""
        first = "SELECT id FROM launches WHERE state = 'queued' ORDER BY id LIMIT 1"
        mine = "state = 'starting', message = '', pid = ?, started = ?, host = ?"
        taking = f"UPDATE launches SET {mine} WHERE id = ({first}) RETURNING {_SHOWN}"
        while rows := self._do(taking, worker.pid, worker.started, worker.host):
            try:
                return _launch(rows[0])
            except ValueError as error:
                self.end(rows[0][0], "refused", f"what was wished cannot be read: {error}")
        return None

    def tell(self, number: int, state: State, run_id: str, steps_done: int) -> None:
        """How far a launch under way has come."""
        news = f"UPDATE launches SET state = ?, run_id = ?, steps_done = ? WHERE id = ? AND {_IS_BUSY}"
        self._do(news, state, run_id, steps_done, number)

    def cancel_asked(self, number: int) -> bool:
        return bool(self._do("SELECT 1 FROM launches WHERE id = ? AND cancel_asked IS NOT NULL", number))

    def end(self, number: int, state: State, message: str = "") -> None:
        """Says how a launch under way ended; what was said first stays."""
        ending = f"UPDATE launches SET state = ?, message = ?, ended = ? WHERE id = ? AND {_IS_BUSY}"
        self._do(ending, state, message, _now(), number)

    def abandoned(self) -> list[tuple[int, str | None, bool]]:
        """(number, run, whether to be cancelled) of all rows under way, which nobody carries out if no worker lives."""
        rows = self._do(f"SELECT id, run_id, cancel_asked IS NOT NULL FROM launches WHERE {_IS_BUSY}")
        return [(number, run_id, bool(cancel)) for number, run_id, cancel in rows]

    def overdue(self, seconds: float) -> list[Owner]:
        """The workers that were asked so long ago to stop what they still carry out."""
        late = f"SELECT DISTINCT pid, started, host FROM launches WHERE {_IS_BUSY} AND cancel_asked < ?"
        return [
            Owner(*row) for row in self._do(late, time.time() - seconds) if tuple(map(type, row)) == (int, float, str)
        ]

    def explain_waiting(self, message: str) -> None:
        """Says at the rows that wait why they do."""
        self._do("UPDATE launches SET message = ? WHERE state = 'queued' AND message <> ?", message, message)


def _now() -> str:
    """In UTC, so that texts sort as times do."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


# -- rows ----------------------------------------------------------------------------------------------------


def _readable(rows: list[Any]) -> list[Launch]:
    found = []
    for row in rows:
        with suppress(ValueError):
            found.append(_launch(row))
    return found


def _launch(row: tuple[Any, ...]) -> Launch:
    """Every value is checked again, the job by the way that every job goes. Raises `ValueError`."""
    import pydantic

    values = dict(zip(_FIELDS, row, strict=True))
    try:
        return _reader().validate_python(values | {"job": _job(values["job"])})
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['loc'][0]}: {first['msg']}") from None


def _job(text: str) -> Job:
    try:
        tables = tomllib.loads(text)
        options = {name: value for table in tables.values() for name, value in table.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the job is not TOML: {error}") from None
    return Job.from_options(**options)


@lru_cache(maxsize=1)
def _reader() -> pydantic.TypeAdapter[Launch]:
    import pydantic  # some 30 ms, so not before it is needed

    return pydantic.TypeAdapter(Launch)
