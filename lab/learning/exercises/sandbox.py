"""Runs a learner's function in processes of its own: whatever it does, the notebook's kernel stays as it was.

The function is copied by value (cloudpickle) to members that the fork server forks, with torch loaded, in a tenth of a
second. They are killed when the time is up, and with them all that they started.
"""

from __future__ import annotations

import linecache
import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.learning.exercises.exercise import Wrong

LIMIT = 20.0  # seconds
STILL = 3.0  # seconds without progress or processor time before ranks that wait for one another are called stuck
SHOWN_FRAMES = 5
COPIED = "<dynamic-code>"  # what cloudpickle calls the file of a function it copied

Frame = tuple[str, int, str]  # file, line, function


@dataclass
class Report:
    """What one member said. details: what its grader returned; lost: nothing but a peer is wrong;
    at: the call under way, in words."""

    details: dict[str, Any] | None = None
    wrong: str = ""
    lost: bool = False
    at: str = ""
    frames: list[Frame] = field(default_factory=list)
    output: str = ""


def run_apart(
    answer: Any, grader: str, *, ranks: int = 1, limit: float, arguments: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Has "module:function" grade `answer` on `ranks` processes; what it returned on each, in rank order.

    The grader is called as `grader(answer, **arguments)` with a `lab.learning.exercises.grader_process.Answer`. Raises
    `Wrong` for an answer that it finds wrong, that raises, exits, crashes, takes too much memory or more than `limit`
    seconds.
    """
    from engine.execution.session import PRELOAD
    from engine.processes.launch import Member, RunCancelled, RunFailed, launch

    payload = {"answer": _copied(answer), "grader": grader, "arguments": arguments or {}}
    names = [f"rank {rank}" if ranks > 1 else "your function" for rank in range(ranks)]
    members = [Member(name, "lab.learning.exercises.grader_process:grade", payload) for name in names]
    reports = {name: Report() for name in names}
    late = threading.Event()
    timer = threading.Timer(limit, late.set)
    timer.daemon = True

    def on_event(name: str, event: dict[str, Any]) -> None:
        if timer.ident is None:  # loading torch for the first time is not the answer's fault
            timer.start()
        for key, value in event.items():
            setattr(reports[name], key, value)

    try:
        launch(
            members, log_path=Path(os.devnull), run_json=None, on_event=on_event, cancel=late,
            hang_seconds=STILL if ranks > 1 else 2 * limit, spin_seconds=2 * limit,
            preload=PRELOAD,  # as runs do, which the same server forks
        )  # fmt: skip
    except RunCancelled:
        _raise_wrong(list(reports.values()), answer)
        raise Wrong(_too_late(reports, limit)) from None
    except RunFailed as error:
        told = reports.get(error.failure.member, Report())
        _raise_wrong([report for report in reports.values() if not report.lost or report is told], answer)
        raise _ended_badly(error.failure, reports, answer) from None
    finally:
        timer.cancel()
    _raise_wrong(list(reports.values()), answer)
    return [report.details or {} for report in reports.values()]


def _copied(answer: Any) -> bytes:
    import cloudpickle

    try:
        data: bytes = cloudpickle.dumps(answer)
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Wrong(f"Your function uses something that cannot be copied to another process: {said}.") from None
    return data


def _raise_wrong(reports: Sequence[Report], answer: Any) -> None:
    """Raises what the first rank found wrong. A lost peer says less than the peer, which comes first."""
    found = [report for report in reports if report.wrong]
    for report in sorted(found, key=lambda report: report.lost):
        shown = {"traceback": _lines(report.frames, answer), "output": report.output}
        raise Wrong(report.wrong, **{name: text for name, text in shown.items() if text})


def _too_late(reports: dict[str, Report], limit: float) -> str:
    waiting = [(name, report) for name, report in reports.items() if report.details is None]
    name, report = waiting[0] if waiting else next(iter(reports.items()))
    call = f" It was called with {report.at}." if report.at else ""
    who = "Your function" if len(reports) == 1 else f"Your function on {name}"
    return f"{who} did not end within {limit:g} s, and was stopped.{call}"


def _ended_badly(failure: Any, reports: dict[str, Report], answer: Any) -> Wrong:
    """A member that ended without a report, or ranks that wait for one another."""
    at = next((report.at for name, report in reports.items() if name == failure.member and report.at), "")
    call = f" It was called with {at}." if at else ""
    who = "Your function" if len(reports) == 1 else f"Your function on {failure.member}"
    if "deadlock" in failure.cause or "made no progress" in failure.cause:
        others = "; ".join(other.replace(" was waiting in ", " waits in ") for other in failure.others)
        where = f"{failure.member} waits in '{failure.action}'" + (f"; {others}" if others else "")
        return Wrong(f"The ranks wait for one another for ever: {where}.{call}")
    found = re.findall(r'File "([^"]+)", line (\d+) in (\S+)', failure.traceback)  # faulthandler: innermost first
    frames = [(file, int(line), name) for file, line, name in reversed(found) if not _ours(file)]
    words = f"{who} ended its process: it {failure.cause.rstrip('.')}.{call}"
    return Wrong(words, **({"traceback": _lines(frames, answer)} if frames else {}))


def _ours(file: str) -> bool:
    from lab.learning.exercises.grader_process import is_machinery

    return is_machinery(file)


def _lines(frames: Sequence[Frame], answer: Any) -> str:
    """The frames as a learner reads them. Cells of a notebook are known to this process only, so they are read here."""
    shown = [(_home(name, answer) if file == COPIED else file, line, name) for file, line, name in frames]
    return "\n".join(_line(*frame) for frame in shown[-SHOWN_FRAMES:])


def _home(name: str, answer: Any) -> str:
    """The file of a copied function, which its copy has forgotten: that of the answer, or of a helper it uses."""
    own = getattr(answer, "__code__", None)
    helper = getattr(getattr(answer, "__globals__", {}).get(name), "__code__", None)
    code = own if helper is None or own is None or own.co_name == name else helper
    return COPIED if code is None else str(code.co_filename)


def _line(file: str, line: int, name: str) -> str:
    code = linecache.getline(file, line).strip()
    place = "your cell" if "ipykernel" in file or file.startswith("<") else Path(file).name
    return f"line {line} of {place}, in {name}" + (f":  {code}" if code else "")
