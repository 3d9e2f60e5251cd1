"""The other side of `lab.learning.exercises.sandbox`: what happens in the process that runs a learner's function."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import resource
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.processes.worker_process import MemberContext
from lab.learning.exercises.exercise import Wrong

MEMORY = 1 << 30
"""Bytes that an answer may take beyond what its process begins with."""
KEPT_OUTPUT = 600  # characters
_MACHINERY = (str(Path(__file__).parent), str(Path(sys.modules["engine"].__file__ or "").parent))
_Frames = list[tuple[str, int, str]]


class PeerLost(Wrong):
    """Another rank has ended: what went wrong there is the news."""


class Answer:
    """The learner's function, guarded: it is called with a description of where, and may do what it likes."""

    def __init__(self, function: Callable[..., Any], context: MemberContext) -> None:
        self._function, self.context = function, context
        self.rank, self.ranks = context.index, context.size

    def __call__(self, *arguments: Any, where: str) -> Any:
        """What it returns; raises `Wrong` if that raises. where: the arguments in words, as in "rank 1 of 2"."""
        self.context.emit({"at": where})
        self.context.status.action(where.encode())
        try:
            return self._function(*arguments)
        except Wrong:
            raise
        except MemoryError as error:
            raise Wrong(f"Your function wanted more than {MEMORY >> 20} MiB of memory, with {where}.") from error
        except SystemExit as error:
            raise Wrong(f"Your function called exit({error.code!r}), with {where}: return a value instead.") from error
        except BaseException as error:
            if "can't allocate memory" in str(error):
                raise Wrong(f"Your function wanted more than {MEMORY >> 20} MiB of memory, with {where}.") from error
            raise Wrong(f"Your function raised {_headline(error)}, with {where}.") from error


class _Kept(io.TextIOBase):
    """A standard output that keeps the beginning of what is printed."""

    def __init__(self) -> None:
        self.text, self.dropped = "", 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = KEPT_OUTPUT - len(self.text)
        self.text += text[:room]
        self.dropped += max(0, len(text) - room)
        return len(text)

    def shown(self) -> str:
        return self.text.rstrip() + (f"\n… and {self.dropped:,} characters more" if self.dropped else "")


def grade(context: MemberContext) -> None:
    """The target of the members: has the grader try the answer, and reports."""
    payload, kept = context.payload, _Kept()
    context.emit({"at": ""})  # the clock starts
    _limit_memory()
    _silence()
    report: dict[str, Any]
    with contextlib.redirect_stdout(kept), contextlib.redirect_stderr(kept):
        try:
            answer = Answer(_unpacked(payload["answer"]), context)
            module, _, name = payload["grader"].partition(":")
            report = {"details": getattr(importlib.import_module(module), name)(answer, **payload["arguments"])}
        except Wrong as wrong:
            lost = isinstance(wrong, PeerLost)
            report = {"wrong": str(wrong), "lost": lost, "frames": [] if lost else _frames(wrong.__cause__)}
    context.emit(report | {"output": kept.shown()})
    if report.get("lost"):
        raise ConnectionResetError("a peer has ended")  # which ranks below whatever ended the peer
    if "wrong" in report and context.size > 1:
        raise SystemExit(1)  # the other ranks must not wait for this one


def _unpacked(data: bytes) -> Callable[..., Any]:
    import cloudpickle

    try:
        function: Callable[..., Any] = cloudpickle.loads(data)
    except Exception as error:
        raise Wrong(f"Your function cannot be loaded in another process: {_headline(error)}.") from error
    return function


def _limit_memory() -> None:
    """Address space is what the system can bound; where it does not say how much is used, nothing is bounded."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _silence() -> None:
    """What is written past Python goes nowhere; standard error stays, since a crash prints its stack there."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _headline(error: BaseException) -> str:
    """The error in one line, without a final point."""
    said = (str(error).strip().splitlines() or [""])[0][:300].rstrip(".")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _frames(error: BaseException | None) -> _Frames:
    """Where it was raised, outermost first: the learner's frames and what they called, without ours."""
    if error is None:
        return []
    found = traceback.extract_tb(error.__traceback__)
    return [(f.filename, f.lineno or 0, f.name) for f in found if not is_machinery(f.filename)]


def is_machinery(file: str) -> bool:
    """Whether a source file is of the lab, and no business of the learner."""
    return file.startswith(_MACHINERY)
