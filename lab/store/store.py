"""Where runs are kept: one folder a run, `runs/<id>/`, with `run.json` saying what it is and how it ended.

The folders are the truth. `index.sqlite` beside them (see `lab.store.index`) only saves reading them again. A
folder that cannot be understood is listed as corrupt, with the reason, and disturbs nobody else.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.job.errors import told
from lab.store.folder import Entry, Owner, RunInfo, environment, write_info

Fill = Callable[[Path, RunInfo], None]

if TYPE_CHECKING:
    from engine.job.job import Job

_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9-]+")
_SAFE = re.compile(r"[a-z0-9][a-z0-9-]*")
_mine: set[str] = set()  # the ids of the runs this very process is executing


class StoreError(Exception):
    """The run folder cannot be used. The message is one sentence with the path and what to do."""

    @classmethod
    def writing(cls, path: Path, error: OSError) -> StoreError:
        """For a file that cannot be written: the system's reason, and what to do."""
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = "free some space or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return cls(f"{path} cannot be written: {reason}; {advice}set SHARDLAB_RUNS to another folder.")


class RunNotFound(LookupError):
    """No run, or several, go by that name."""

    def __str__(self) -> str:
        return str(self.args[0])


def default_root() -> Path:
    """SHARDLAB_RUNS, or else `./runs`; absolute."""
    return Path(os.environ.get("SHARDLAB_RUNS") or "runs").absolute()


class Store:
    """The runs under `root`, by default the environment variable SHARDLAB_RUNS or else `./runs`."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root).absolute() if root is not None else default_root()

    def folder(self, run_id: str) -> Path:
        """Where the run is or would be; nobody looks whether it is there."""
        return self.root / run_id

    def create(self, job: Job, command: tuple[str, ...], fill: Fill | None = None, **more: Any) -> RunInfo:
        """Makes the folder of a new run, with `run.json` and `job.toml`. It appears whole or not at all.

        fill: writes the rest of a folder that is complete from the beginning, of a simulation for example, whose
        further fields of `run.json` are `more`.
        """
        now = datetime.now().astimezone()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            while True:
                run_id = f"{now:%Y%m%d-%H%M%S}-{_words(job)}-{secrets.token_hex(2)}"
                info = new_info(run_id, job, command, created=now, **more)
                if self._place(info, fill or _make_live):
                    return info
        except OSError as error:
            raise StoreError.writing(self.root, error) from error

    def _place(self, info: RunInfo, fill: Fill) -> bool:
        """Prepares the folder out of sight and moves it in; False if its name is taken."""
        final, draft = self.folder(info.id), self.root / f".{info.id}"
        try:
            draft.mkdir(exist_ok=False)
        except FileExistsError:
            return False
        try:
            fill(draft, info)
            (draft / "job.toml").write_text(info.job_toml, encoding="utf-8")
            write_info(draft, info)
            if final.exists():
                return False
            draft.rename(final)  # onto a folder with something in it this fails, so nothing is ever replaced
            return True
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def begin(self, queued: RunInfo) -> RunInfo:
        """A run that waited is now this process's to carry out."""
        now = datetime.now().astimezone().isoformat(timespec="milliseconds")
        info = replace(queued, status="running", created=now, owner=Owner.this_process(), command=tuple(sys.argv))
        self.write(info)
        return info

    def write(self, info: RunInfo) -> None:
        """Replaces `run.json` in one step."""
        folder = self.folder(info.id)
        try:
            write_info(folder, info)
        except OSError as error:
            raise StoreError.writing(folder, error) from error

    @contextmanager
    def executing(self, run_id: str) -> Iterator[None]:
        """While this lasts the run counts as running; after it, a `run.json` that still says so is out of
        date.
        """
        _mine.add(run_id)
        try:
            yield
        finally:
            _mine.discard(run_id)

    def folders(self) -> list[Path]:
        """The folders that look like runs; whatever else lies in `root` is none of our business."""
        try:
            return sorted(path for path in self.root.iterdir() if _ID.fullmatch(path.name) and path.is_dir())
        except OSError:
            return []

    def entries(self) -> list[Entry]:
        """All runs, newest first."""
        from lab.store.index import indexed

        entries = [Entry(settle(entry.info), entry.digest) for entry in indexed(self.root, self.folders())]
        return sorted(entries, key=lambda entry: (_moment(entry.info), entry.info.id), reverse=True)

    def find(self, name: str) -> Entry:
        """The run called `name`: its id, the beginning or end of its id, `latest`, or -1 (newest), -2 and so
        on.

        Raises `RunNotFound`.
        """
        entries = self.entries()
        if not entries:
            raise RunNotFound(f"there are no runs in {self.root} yet: make one with `lab run`.")
        back = 1 if name == "latest" else -int(name) if re.fullmatch(r"-\d{1,6}", name) else None
        if back is not None:
            if not 1 <= back <= len(entries):
                raise RunNotFound(
                    f"there is no run {name}: the {len(entries)} runs are -1 (newest) to -{len(entries)}."
                )
            return entries[back - 1]
        if not _SAFE.fullmatch(name):
            raise RunNotFound(f"{told(name)} is not the id of a run, nor the beginning or end of one.")
        for matches in (str.__eq__, str.startswith, str.endswith):
            found = [entry for entry in entries if matches(entry.info.id, name)]
            if len(found) == 1:
                return found[0]
            if found:
                some = ", ".join(entry.info.id for entry in found[:4])
                raise RunNotFound(f"{told(name)} fits {len(found)} runs ({some}{', …' * (len(found) > 4)}): say more.")
        raise RunNotFound(
            f"there is no run {told(name)} in {self.root}: `lab runs` lists them; the newest is `latest`."
        )


def new_info(run_id: str, job: Job, command: tuple[str, ...], created: datetime, **more: Any) -> RunInfo:
    """What `run.json` says of a run that begins; `more` overrides its fields."""
    known: dict[str, Any] = {
        "created": created.isoformat(timespec="milliseconds"), "status": "running", "job": job.options(),
        "job_toml": job.to_toml(), "command": command, "environment": environment(), "owner": Owner.this_process(),
    }  # fmt: skip
    return RunInfo(id=run_id, **(known | more))


def _make_live(draft: Path, info: RunInfo) -> None:
    (draft / "live").mkdir()


def _words(job: Job) -> str:
    """The part of an id that people recognise: dp2tp2pp2-zero1."""
    degrees = "".join(f"{axis}{degree}" for axis, degree in job.plan.degrees.items())
    return f"{degrees}-zero{job.plan.zero}"


def _moment(info: RunInfo) -> float:
    try:
        return datetime.fromisoformat(info.created).timestamp()
    except ValueError:
        return 0.0


def settle(info: RunInfo) -> RunInfo:
    """`info` with the truth about a run that says it is running."""
    if info.status != "running" or info.owner is None:
        return info
    here = (info.owner.pid, info.owner.host) == (os.getpid(), socket.gethostname())
    if (here and info.id not in _mine) or info.owner.is_gone():
        return replace(info, status="killed", message="the program that started this run went away")
    return info
