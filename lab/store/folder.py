"""One run's folder: what `run.json` says, and whether the rest can be trusted."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine.loading import import_whole
from engine.machine import cores
from engine.plain_file import GROWN, RECORD, open_plain, read_text
from engine.versions import version
from engine.whole_file import write_whole
from lab.store.validation import first_fault, readable_job
from lab.typical_seconds import typical_seconds

if TYPE_CHECKING:
    import pydantic

Status = Literal["queued", "running", "finished", "failed", "stopped", "killed", "corrupt", "simulated"]
WHOLE = ("finished", "simulated")  # of these the summary and all tables must be there

TABLES = ("ops", "memory", "metrics")
DISTANCES = "distances.json"
"""How far the run was from one process, step by step; absent from one that was not compared."""
_PARQUET_MARK = b"PAR1"  # first and last four bytes of every Parquet file
_NO_SUMMARY = "summary.json is not the summary of a run"
_SAME_START = 2.0  # seconds by which two readings of one process's start time may differ


@dataclass(frozen=True)
class Owner:
    """The process that executes a run. Process ids are used again, so its start (seconds since 1970) goes
    with it, and `since_boot`: on Linux that stays when the clock is set, on macOS the other does.
    """

    pid: int
    started: float
    host: str
    since_boot: float | None = None

    @classmethod
    def this_process(cls) -> Owner:
        """The process that calls, by number, start and host: numbers are given out again."""
        import psutil

        started = psutil.Process().create_time()
        return cls(os.getpid(), started, socket.gethostname(), started - psutil.boot_time())

    def is_stopped(self) -> bool:
        """Whether a signal such as SIGSTOP keeps it from going on; False of one on another host."""
        from engine.processes.stopped import is_stopped

        return self.host == socket.gethostname() and not self.is_gone() and is_stopped(self.pid)

    def is_gone(self) -> bool:
        """Whether it has certainly ended; of a process on another host nobody here can tell."""
        import psutil

        if self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            started = process.create_time()
            same = abs(started - self.started) < _SAME_START
            if not same and self.since_boot is not None:  # perhaps the clock was set since
                same = abs(started - psutil.boot_time() - self.since_boot) < _SAME_START
            return not same or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """What `run.json` says. `created` is ISO 8601 with the zone; `resident_bytes` is of each rank's
    process at its end; `fingerprints` is of the weights each rank held then, equal where these are, to the last bit;
    `parity` is whether it is compared with one process.
    """

    id: str
    created: str
    status: Status
    message: str = ""
    job: dict[str, Any] = field(default_factory=dict)
    job_toml: str = ""
    command: tuple[str, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    owner: Owner | None = None
    backend: str = ""
    device: str = ""
    backend_reason: str = ""
    resident_bytes: tuple[int, ...] = ()
    fingerprints: tuple[str, ...] = ()
    parity: bool = True


@dataclass(frozen=True)
class Entry:
    """A run in a listing: what `run.json` says, and a digest of `summary.json` ({} without one)."""

    info: RunInfo
    digest: dict[str, Any]


@lru_cache(maxsize=1)
def _reader() -> pydantic.TypeAdapter[Entry]:
    import_whole("pydantic")
    import pydantic  # some 30 ms, so not before it is needed

    return pydantic.TypeAdapter(Entry)


def entry_from_json(text: str | bytes) -> Entry:
    """Raises `ValueError` that names the field."""
    import pydantic

    try:
        return _reader().validate_json(text)
    except pydantic.ValidationError as error:
        raise ValueError(first_fault(error, within=1)) from None


def environment() -> dict[str, Any]:
    """What a run depends on besides its job. Reads versions from package metadata: importing torch takes
    seconds.
    """
    import platform

    return {
        "python": platform.python_version(),
        **{package: version(package) for package in ("shardlab", "torch", "numpy")},
        "platform": platform.platform(),
        "cpu_count": cores(),
    }


def read_entry(folder: Path) -> Entry:
    """Reads and checks one run's folder. Never raises: what is wrong becomes status "corrupt" and a
    message.
    """
    try:
        info = _read_info(folder)
        found = digest(_read_summary(folder, needed=info.status in WHOLE))
        if info.status in WHOLE or not (folder / "live").exists():
            _check_tables(folder, needed=info.status in WHOLE)
        return Entry(info, found)
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
        return Entry(RunInfo(id=folder.name, created=_created(folder.name), status="corrupt", message=reason), {})


def _read_info(folder: Path) -> RunInfo:
    text = _content(folder / "run.json", RECORD)
    try:
        info = entry_from_json(f'{{"info": {text}, "digest": {{}}}}').info
    except ValueError as error:
        raise ValueError(f"run.json cannot be read: {error}") from None
    job = readable_job(info.job)
    return replace(info, id=folder.name, job=job)  # a folder that was renamed goes by its new name


def _content(path: Path, most: int) -> str:
    """The text of a file of a run. Raises `ValueError` that names it, shortly: where the run is, is known."""
    with _named(path):
        try:
            return read_text(path, most)
        except UnicodeDecodeError:
            raise ValueError(f"{path.name} cannot be read: it is not text") from None


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"{path.name} is missing") from None
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from None


def _read_summary(folder: Path, needed: bool) -> dict[str, Any]:
    path = folder / "summary.json"
    if not needed and not path.exists():
        return {}
    text = _content(path, GROWN)
    try:
        summary = json.loads(text)
    except ValueError:
        raise ValueError("summary.json is not JSON") from None
    if not isinstance(summary, dict) or not isinstance(summary.get("steps"), list):
        raise ValueError(_NO_SUMMARY)
    return summary


def _check_tables(folder: Path, needed: bool) -> None:
    """A Parquet file cut short has lost the mark at its end; that much can be told without reading it."""
    for name in TABLES:
        path = folder / f"{name}.parquet"
        if not needed and not path.exists():
            continue
        with _named(path), open_plain(path) as file:
            begins = file.read(4) == _PARQUET_MARK
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4))
            if not begins or file.read(4) != _PARQUET_MARK:
                raise ValueError(f"{path.name} is cut short or is no Parquet file")


def digest(summary: dict[str, Any]) -> dict[str, Any]:
    """The few numbers of a summary that a list of runs shows. Raises `ValueError` for what is none."""
    if not summary:
        return {}
    try:
        found = _digest(summary)
    except (LookupError, TypeError, AttributeError):
        raise ValueError(_NO_SUMMARY) from None
    words = {name: found.get(name) or "" for name in ("schedule", "cluster", "verdict")}
    numbers = [value for name, value in found.items() if name not in words and value is not None]
    numbers += [step.get("seconds") for step in summary["steps"]]
    if not all(isinstance(value, str) for value in words.values()) or not all(
        isinstance(value, (int, float)) for value in numbers
    ):
        raise ValueError(_NO_SUMMARY)
    return found


def _digest(summary: dict[str, Any]) -> dict[str, Any]:
    steps = summary["steps"]
    simulated = {key: summary[key] for key in ("cluster", "mfu") if key in summary}
    parity = summary.get("parity") or {}
    bubbles, ranks = summary.get("bubble") or {}, (summary.get("memory") or {}).get("per_rank") or []
    return simulated | {
        "steps": len(steps),
        "loss": steps[-1]["loss"] if steps else None,
        "step_seconds": typical_seconds(steps),
        "parity": parity.get("passed"),
        "verdict": parity.get("state"),
        "first_step_out": parity.get("first_step_out"),
        "schedule": summary.get("schedule", ""),
        "bubble": bubbles.get("replayed" if simulated else "measured"),
        "peak_bytes": max((rank["total_peak"] for rank in ranks), default=None),
    }


def _created(run_id: str) -> str:
    """The time an id was made at, for a run whose own file cannot say."""
    try:
        return datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").astimezone().isoformat()
    except ValueError:
        return ""


def _plain(value: Any) -> Any:
    """Without the lone surrogates that Python puts for bytes of a command or a path that are not UTF-8: no JSON reader
    takes them."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


def write_info(folder: Path, info: RunInfo) -> None:
    """Replaces `run.json` in one step, so that a reader never sees half of it."""
    path, text = folder / "run.json", json.dumps(_plain(asdict(info)), indent=2)
    try:
        write_whole(path, text)
    except OSError as error:
        if error.errno != errno.ENOSPC or not path.exists():
            raise
        path.write_text(text, encoding="utf-8")  # on a full disk: into the block the old text has
